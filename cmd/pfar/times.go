package main

import "time"

// Times for people are in their own zone, which stands behind them. Only lines that come as things happen leave it out.

// stamp returns a moment to the second.
func stamp(t time.Time) string { return t.Local().Format("2006-01-02 15:04:05 MST") }

// minute returns a moment to the minute.
func minute(t time.Time) string { return t.Local().Format("2006-01-02 15:04 MST") }

// clock returns the time of day of something that happens now.
func clock(t time.Time) string { return t.Local().Format(time.TimeOnly) }
