package janitor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

const (
	// failingAfter is how long a duty must fail until the janitor reports it to the store. A duty whose next try comes
	// later than that is reported at once.
	failingAfter = 10 * time.Second
	// reportEvery is the shortest time between two reports of a duty that keeps failing.
	reportEvery = 30 * time.Second
	// reportTimeout is how long a report may take. It delays the duty.
	reportTimeout = 2 * time.Second
	// maxReportedError is how many characters of an error a report has.
	maxReportedError = 500
)

// fenceDuty is the name of the duty that must not wait for a report.
const fenceDuty = "fence"

// failures are the duties of this janitor that fail, by name.
type failures struct {
	mu sync.Mutex
	by map[string]failure
}

// failure is a duty that fails.
type failure struct{ began, reported time.Time }

// failed logs that a duty has failed, and reports a duty that has failed for a while to the store. wait is the time until
// the next try.
func (j *Janitor) failed(ctx context.Context, duty string, cause error, wait time.Duration) {
	j.o.Log.WithError(cause).WithField("duty", duty).Warn("duty failed, trying again")
	j.reportFailed(ctx, duty, cause, wait)
}

// reportFailed is failed without a log message.
func (j *Janitor) reportFailed(ctx context.Context, duty string, cause error, wait time.Duration) {
	now := time.Now()
	j.failures.mu.Lock()
	f, known := j.failures.by[duty]
	if !known {
		f.began = now
	}
	// The fence duty uses only the store. If it is not available, a report would only delay the next try.
	lost := duty == fenceDuty && errors.Is(cause, holdfast.ErrUnavailable)
	due := !lost && now.Sub(f.began)+wait >= failingAfter && (f.reported.IsZero() || now.Sub(f.reported)+wait >= reportEvery)
	if due {
		f.reported = now
	}
	j.failures.by[duty] = f
	j.failures.mu.Unlock()
	if !due {
		return
	}
	j.report(ctx, store.DutyFailure{
		Duty: duty, Error: fmt.Sprintf("%.*s", maxReportedError, cause.Error()), For: now.Sub(f.began), Valid: wait + 2*reportEvery,
	})
}

// succeeded takes back the report of a duty that works again.
func (j *Janitor) succeeded(ctx context.Context, duty string) {
	j.failures.mu.Lock()
	f := j.failures.by[duty]
	delete(j.failures.by, duty)
	j.failures.mu.Unlock()
	if !f.reported.IsZero() {
		j.report(ctx, store.DutyFailure{Duty: duty})
	}
}

// report sends a report to the store. An error loses only the report: a duty that fails is reported again, and an old
// report becomes invalid.
func (j *Janitor) report(ctx context.Context, f store.DutyFailure) {
	ctx, cancel := context.WithTimeout(ctx, reportTimeout)
	defer cancel()
	f.Janitor = j.o.Name
	if f.Janitor == "" {
		host, _ := os.Hostname()
		f.Janitor = fmt.Sprintf("%s/%d", host, os.Getpid())
	}
	if err := j.o.Store.ReportDuty(ctx, f); err != nil {
		j.o.Log.WithError(err).WithField("duty", f.Duty).Debug("duty not reported")
	}
}
