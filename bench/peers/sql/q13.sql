SELECT B.auction, B.bidder, B.price, B.date_time, S.`value`
FROM bid AS B, LATERAL TABLE(side_input(MOD(B.auction, 10000))) AS S(`value`)
