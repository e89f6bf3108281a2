-- The highest bid of an auction, of equal ones the first, is the price that it was sold for.
WITH sold AS (
  SELECT *
  FROM (
    SELECT a.id, a.seller, b.price, b.date_time,
           row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time) AS rank_number
    FROM auction a JOIN bid b ON a.id = b.auction
    WHERE b.date_time BETWEEN a.date_time AND a.expires
  )
  WHERE rank_number = 1
)
SELECT seller, sum(price) OVER last_sold DIV count(*) OVER last_sold AS avg_price
FROM sold
WINDOW last_sold AS (PARTITION BY seller ORDER BY date_time ROWS BETWEEN 10 PRECEDING AND CURRENT ROW)
