SELECT auction, bidder, price, date_time, extra,
       date_format(timestamp_micros(date_time), 'yyyy-MM-dd') AS dt,
       date_format(timestamp_micros(date_time), 'HH:mm') AS hm
FROM bid
