package rabbitmq

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/doctor"
)

// The series this package is written for, and the first release of the newest one that can be trusted.
// Sources: RabbitMQ's release notes and its pages on quorum queues and on support.
var (
	oldestKnown = release{3, 10, 0} // quorum queues that dead-letter at least once
	newestKnown = release{4, 3, 0}
	newestSound = release{4, 3, 5}
)

// release is a version as numbers.
type release [3]int

// parseRelease reads "4.0.5", also with something after it, such as "-rc.1".
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

// judgeVersion says what is known of a server; where is its address.
func judgeVersion(product, version, where string) doctor.Check {
	f := doctor.Check{Name: "broker version", Severity: doctor.Warning, Detail: fmt.Sprintf("%s %s at %s", product, version, where)}
	r, readable := parseRelease(version)
	switch {
	case product != "RabbitMQ":
		f.Detail += ", which is not RabbitMQ and was never tested"
		f.Remedy = holdfast.Advice("use RabbitMQ: losing nothing depends on how its quorum queues work")
	case !readable:
		f.Detail += ", a version that cannot be read"
		f.Remedy = holdfast.Advice(fmt.Sprintf("compare it yourself: %s and later are supported", oldestKnown))
	case r.before(oldestKnown):
		f.Severity = doctor.Failed
		f.Detail += ", whose queues lose what they dead-letter"
		f.Remedy = holdfast.Advice(fmt.Sprintf("upgrade to %s or later", newestSound))
	case r.before(newestKnown):
		f.Detail += ", which works, but is out of community support"
		f.Remedy = holdfast.Advice(fmt.Sprintf("plan the upgrade to %s or later, through the newest 3.13 and the newest 4.2; nothing of Holdfast changes with it", newestSound))
	case r.before(newestSound):
		f.Detail += ", whose quorum queues have known defects"
		f.Remedy = holdfast.Advice(fmt.Sprintf("upgrade to %s or later", newestSound))
	case newestKnown.before(r.series()):
		f.Detail += fmt.Sprintf(", newer than %d.%d, the newest that this version of Holdfast knows", newestKnown[0], newestKnown[1])
		f.Remedy = holdfast.Advice("look for a newer Holdfast, and try the two together before production")
	default:
		f.Severity = doctor.OK
	}
	return f
}
