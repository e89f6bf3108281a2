-- Of equal prices the earlier one ranks first.
SELECT *
FROM (SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, date_time) AS rank_number FROM bid)
WHERE rank_number <= 10
