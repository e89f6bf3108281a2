-- Which window of processing time a bid falls into is chance: only how many bids somebody made in all is certain.
SELECT bidder, count(*) AS bid_count FROM bid GROUP BY bidder
