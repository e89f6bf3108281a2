-- The processing-time window of a bid is nondeterministic: only the total number of bids of each bidder is fixed.
SELECT bidder, count(*) AS bid_count FROM bid GROUP BY bidder
