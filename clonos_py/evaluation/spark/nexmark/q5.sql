WITH counts AS (
  SELECT auction, window.start AS starttime, count(*) AS num
  FROM bid
  GROUP BY auction, window(timestamp_micros(date_time), '10 seconds', '2 seconds')
)
SELECT counts.auction, counts.num
FROM counts JOIN (SELECT starttime, max(num) AS maxn FROM counts GROUP BY starttime) most
ON counts.starttime = most.starttime AND counts.num = most.maxn
