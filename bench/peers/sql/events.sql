-- The event files as tables. Files have timestamps in microseconds; event time in Flink needs milliseconds.
-- {events}: the folder; {late}: the delay of watermarks, that is, how far an event may be out of order.
CREATE TABLE person (
    id BIGINT, name STRING, email_address STRING, credit_card STRING, city STRING, state STRING,
    date_time TIMESTAMP(3), extra STRING,
    WATERMARK FOR date_time AS date_time - INTERVAL {late}
) WITH ('connector' = 'filesystem', 'format' = 'parquet', 'parquet.utc-timezone' = 'true', 'path' = '{events}/person');

CREATE TABLE auction (
    id BIGINT, item_name STRING, description STRING, initial_bid BIGINT, reserve BIGINT, date_time TIMESTAMP(3),
    expires TIMESTAMP(3), seller BIGINT, category BIGINT, extra STRING,
    WATERMARK FOR date_time AS date_time - INTERVAL {late}
) WITH ('connector' = 'filesystem', 'format' = 'parquet', 'parquet.utc-timezone' = 'true', 'path' = '{events}/auction');

CREATE TABLE bid (
    auction BIGINT, bidder BIGINT, price BIGINT, channel STRING, url STRING, date_time TIMESTAMP(3), extra STRING,
    WATERMARK FOR date_time AS date_time - INTERVAL {late}
) WITH ('connector' = 'filesystem', 'format' = 'parquet', 'parquet.utc-timezone' = 'true', 'path' = '{events}/bid');

CREATE VIEW timed_bid AS SELECT *, PROCTIME() AS p_time FROM bid;

CREATE FUNCTION count_char AS 'clonos.peers.CountChar';

CREATE FUNCTION side_input AS 'clonos.peers.SideInput';
