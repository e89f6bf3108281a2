-- A session ends where the next bid is more than 10 seconds away: sessions that touch are one, as in Flink.
SELECT bidder, count(*) AS bid_count, min(date_time) AS starttime, max(date_time) + 10000000 AS endtime
FROM (
  SELECT bidder, date_time, sum(opens) OVER (PARTITION BY bidder ORDER BY date_time) AS session
  FROM (
    SELECT bidder, date_time,
           CASE WHEN date_time - lag(date_time) OVER (PARTITION BY bidder ORDER BY date_time) <= 10000000
                THEN 0 ELSE 1 END AS opens
    FROM bid
  )
)
GROUP BY bidder, session
