package main

import (
	"strconv"
	"strings"
	"time"
)

// sinceUsage describes what --since of events takes.
const sinceUsage = "events since a `TIME`, also those before the agent's start: yesterday, today, 2h, 3d, 2026-01-31, " +
	"or RFC 3339"

// parseSince returns the time that a text names, as seen from now: a day, how long ago it was, or a
// time. A day begins at midnight, local time.
func parseSince(text string, now time.Time) (time.Time, error) {
	midnight := time.Date(now.Year(), now.Month(), now.Day(), 0, 0, 0, 0, now.Location())
	switch text {
	case "today":
		return midnight, nil
	case "yesterday":
		return midnight.AddDate(0, 0, -1), nil
	}
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(-d), nil
	}
	if number, ok := strings.CutSuffix(text, "d"); ok {
		if days, err := strconv.ParseUint(number, 10, 16); err == nil {
			return now.Add(-time.Duration(days) * 24 * time.Hour), nil
		}
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly, "2006-01-02 15:04", time.DateTime} {
		if at, err := time.ParseInLocation(layout, text, now.Location()); err == nil {
			return at, nil
		}
	}
	return time.Time{}, wrongly("--since %s: give yesterday, today, a duration such as 2h or 3d, or a time such as "+
		"2026-01-31 or 2026-01-31T15:04:05Z", text)
}
