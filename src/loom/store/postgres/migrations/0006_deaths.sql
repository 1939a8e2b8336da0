-- Of the branch that counts deaths of workers: nothing here yet.
SELECT 1;
