package cron

import (
	_ "embed"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/holdfastq/holdfast"
)

// zones has the names of the IANA time zone database that package time/tzdata embeds, without Factory, which means that
// no zone is configured.
//
//go:embed zones.txt
var zones string

var knownZones = sync.OnceValue(func() map[string]bool {
	known := make(map[string]bool)
	for name := range strings.Lines(zones) {
		known[strings.TrimSpace(name)] = true
	}
	return known
})

// Zone returns the time zone of a name in the IANA database, such as Europe/Berlin. The empty name is UTC. The error
// wraps [holdfast.ErrInvalid] and has a hint. Names that only some machines have, or that mean another zone on another
// machine, are errors: Local, localtime, posixrules, posix/Europe/Berlin, and europe/berlin, which macOS accepts.
func Zone(name string) (*time.Location, error) {
	if name != "" && !knownZones()[name] {
		return nil, unknownZone(name)
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, unknownZone(name)
	}
	return zone, nil
}

func unknownZone(name string) error {
	return holdfast.WithHint(fmt.Errorf("%w: unknown time zone %.100q", holdfast.ErrInvalid, name),
		holdfast.Advice("use a name of the IANA time zone database, such as Europe/Berlin or America/New_York, or UTC"))
}
