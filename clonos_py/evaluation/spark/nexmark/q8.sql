SELECT p.id, p.name, p.starttime
FROM (SELECT DISTINCT id, name, date_time DIV 10000000 * 10000000 AS starttime FROM person) p
JOIN (SELECT DISTINCT seller, date_time DIV 10000000 * 10000000 AS starttime FROM auction) a
ON p.id = a.seller AND p.starttime = a.starttime
