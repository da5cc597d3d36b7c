package main

import (
	"os"
	"path/filepath"
	"strings"
	"time"
	_ "time/tzdata" // for systems without zone data, such as small containers
)

// checkZone returns an error if name, the value of TZ, names no time zone. Package time would silently use UTC, and
// tasks would start hours before or after the given local time. The empty name means UTC.
func checkZone(name string) error {
	name = strings.TrimPrefix(name, ":")
	var err error
	switch {
	case filepath.IsAbs(name):
		var data []byte
		if data, err = os.ReadFile(name); err == nil {
			_, err = time.LoadLocationFromTZData(name, data)
		}
	case name == "Local": // a name of package time only
		err = os.ErrNotExist
	default:
		_, err = time.LoadLocation(name)
	}
	if err != nil {
		return usage("TZ: unknown time zone %.100q; set TZ to a name like Europe/Berlin or UTC, or unset it", name)
	}
	return nil
}
