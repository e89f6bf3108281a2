SELECT auction, bidder, price, date_time, extra
FROM (SELECT *, max(price) OVER (PARTITION BY date_time DIV 10000000) AS maxprice FROM bid)
WHERE price = maxprice
