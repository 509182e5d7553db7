-- For observers, as in the real service: what is known about the logs of a host and of a cluster's controller.
ALTER TABLE clusters ADD COLUMN logs_info text;
ALTER TABLE hosts ADD COLUMN logs_info text;
