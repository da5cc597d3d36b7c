package main

import (
	"testing"
	"time"
)

func TestAgo(t *testing.T) {
	t.Parallel()
	for d, want := range map[time.Duration]string{
		0:                      "0s ago",
		-time.Millisecond:      "in 0s",
		119 * time.Second:      "119s ago",
		2 * time.Minute:        "2m ago",
		-119 * time.Minute:     "in 119m",
		47*time.Hour + 1:       "47h ago",
		49 * time.Hour:         "2d ago",
		-1000 * 24 * time.Hour: "in 1000d",
	} {
		if got := ago(d); got != want {
			t.Errorf("%s: %q, want %q", d, got, want)
		}
	}
}

func TestCompareCells(t *testing.T) {
	t.Parallel()
	ordered := map[string][]string{
		"durations": {"0s", "900ms", "1.5s", "2m0s", "1h0m0s"},
		"numbers":   {"", "2", "10", "10 of 50", "11"},
		"times":     {"2026-01-31T09:00:00Z", "2026-02-01T00:00:00Z", "2027-01-01T00:00:00Z"},
		"texts":     {"", "http", "mail"},
	}
	for name, cells := range ordered {
		for i := range cells {
			for j := range cells {
				if got, want := compareCells(cells[i], cells[j]) < 0, i < j; got != want {
					t.Errorf("%s: %q before %q is %t", name, cells[i], cells[j], got)
				}
			}
		}
	}
}
