package cron_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/cron"
)

// FuzzNext parses any text, and searches times from any time in zones of all kinds. It checks that an error says that
// the text is invalid, that Next is later than the given time, and that the result does not depend on where in between
// the search begins.
func FuzzNext(f *testing.F) {
	for i, text := range texts {
		f.Add(text, int64(i)*31_536_000, int64(i), uint8(i))
	}
	for _, text := range []string{"@daily", "@every 5m", "TZ=UTC * * * * *", "0 0 31 2 *", "0 0 29 2 */7", "* * * *", "61 * * * *", "5-2 * * * *", "*/0 * * * *"} {
		f.Add(text, int64(1_774_746_000), int64(999_999_999), uint8(1))
	}
	f.Add("@yearly", int64(3_728_073_600), int64(0), uint8(1)) // 2088, a leap year
	var zones []*time.Location
	for _, name := range []string{"UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "Antarctica/Troll",
		"Africa/Casablanca", "Pacific/Apia", "America/Sao_Paulo", "Africa/Monrovia", "Asia/Manila", "Europe/London"} {
		zones = append(zones, zoneOf(f, name))
	}
	f.Fuzz(func(t *testing.T, text string, seconds, nanoseconds int64, zone uint8) {
		e, err := cron.Parse(text)
		if err != nil {
			if !errors.Is(err, holdfast.ErrInvalid) || strings.Contains(err.Error(), "\n") || e != (cron.Expression{}) {
				t.Fatalf("%q: %+v, %v", text, e, err)
			}
			return
		}
		const from, to = -62_135_596_800, 253_402_300_800 // years 1 to 9999
		after := time.Unix(from+int64(uint64(seconds-from)%(to-from)), int64(uint64(nanoseconds)%1e9))
		location := zones[int(zone)%len(zones)]
		next := e.Next(after, location)
		if !next.After(after) || next.Nanosecond() != 0 || next.Location() != location {
			t.Fatalf("%q in %s: after %s comes %s", text, location, after.UTC().Format(layout), next)
		}
		for _, between := range []time.Time{next.Add(-1), after.Add(next.Sub(after) / 2), after.Add(time.Hour)} {
			if between.Before(after) || !between.Before(next) {
				continue
			}
			if again := e.Next(between, location); !again.Equal(next) {
				t.Fatalf("%q in %s: after %s comes %s, but after %s comes %s", text, location, after.UTC().Format(layout), next, between, again)
			}
		}
	})
}
