package rabbitmq

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/doctor"
)

// The supported release series, and the first recommended release of the newest series. Sources are RabbitMQ's release
// notes and its documentation of quorum queues and of supported versions.
var (
	oldestSupported = release{3, 10, 0} // the first release with quorum queues that dead-letter at least once
	newestTested    = release{4, 3, 0}
	recommended     = release{4, 3, 5}
)

// release is a version number: major, minor and patch.
type release [3]int

// parseRelease parses a version such as "4.0.5" and ignores a suffix such as "-rc.1".
func parseRelease(text string) (r release, ok bool) {
	for i, part := range strings.SplitN(text, ".", 3) {
		end := strings.IndexFunc(part+" ", func(c rune) bool { return c < '0' || c > '9' })
		n, err := strconv.Atoi(part[:end])
		if err != nil {
			return r, false
		}
		r[i], ok = n, i > 0
	}
	return r, ok
}

func (r release) before(other release) bool {
	for i := range r {
		if r[i] != other[i] {
			return r[i] < other[i]
		}
	}
	return false
}

func (r release) series() release { return release{r[0], r[1], 0} }

func (r release) String() string { return fmt.Sprintf("%d.%d.%d", r[0], r[1], r[2]) }

// checkVersion checks product and version of the server at the address where.
func checkVersion(product, version, where string) doctor.Check {
	f := doctor.Check{Name: "broker version", Severity: doctor.Warning, Detail: fmt.Sprintf("%s %s at %s", product, version, where)}
	r, readable := parseRelease(version)
	switch {
	case product != "RabbitMQ":
		f.Detail += ", which is not RabbitMQ and was never tested"
		f.Remedy = holdfast.Advice("use RabbitMQ: Holdfast relies on its quorum queues")
	case !readable:
		f.Detail += ", a version that cannot be parsed"
		f.Remedy = holdfast.Advice(fmt.Sprintf("check the version yourself: %s and later are supported", oldestSupported))
	case r.before(oldestSupported):
		f.Severity = doctor.Failed
		f.Detail += ", whose queues can lose messages that they dead-letter"
		f.Remedy = holdfast.Advice(fmt.Sprintf("upgrade to %s or later", recommended))
	case r.before(newestTested):
		f.Detail += ", which works, but has no community support"
		f.Remedy = holdfast.Advice(fmt.Sprintf("plan the upgrade to %s or later, through the newest 3.13 and the newest 4.2; Holdfast needs no change", recommended))
	case r.before(recommended):
		f.Detail += ", whose quorum queues have known defects"
		f.Remedy = holdfast.Advice(fmt.Sprintf("upgrade to %s or later", recommended))
	case newestTested.before(r.series()):
		f.Detail += fmt.Sprintf(", newer than %d.%d, the newest version tested with this Holdfast", newestTested[0], newestTested[1])
		f.Remedy = holdfast.Advice("look for a newer version of Holdfast, or test the two together before production")
	default:
		f.Severity = doctor.OK
	}
	return f
}
