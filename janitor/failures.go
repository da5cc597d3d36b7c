package janitor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

const (
	// failingAfter is how long a duty must have failed before the janitor reports it to the store. If the next try is
	// later than that, the janitor reports the duty at once.
	failingAfter = 10 * time.Second
	// reportEvery is the minimum time between two reports of a duty that keeps failing.
	reportEvery = 30 * time.Second
	// reportTimeout is the maximum time of a report, which delays the duty.
	reportTimeout = 2 * time.Second
	// maxReportedError is the maximum length of an error in a report, in characters.
	maxReportedError = 500
)

// fenceDuty is the name of the duty that must not wait for a report.
const fenceDuty = "fence"

// failures are the failing duties of this janitor, by name.
type failures struct {
	mu sync.Mutex
	by map[string]failure
}

// failure is a failing duty.
type failure struct{ began, reported time.Time }

// failed logs that a duty has failed. If the duty has failed for a while, it also reports the duty to the store. wait
// is the time until the next try.
func (j *Janitor) failed(ctx context.Context, duty string, cause error, wait time.Duration) {
	withStack(j.o.Log.WithError(cause), cause).WithField("duty", duty).Warn("duty failed, trying again")
	j.reportFailed(ctx, duty, cause, wait)
}

// withStack adds the stack of a panic to a log message.
func withStack(log logrus.FieldLogger, cause error) logrus.FieldLogger {
	if p, panicked := errors.AsType[*holdfast.PanicError](cause); panicked {
		return log.WithField("stack", p.Stack)
	}
	return log
}

// reportFailed does the work of failed without a log message.
func (j *Janitor) reportFailed(ctx context.Context, duty string, cause error, wait time.Duration) {
	now := time.Now()
	j.failures.mu.Lock()
	f, known := j.failures.by[duty]
	if !known {
		f.began = now
	}
	// The fence duty needs only the store. If the store is unavailable, a report would only delay the next try.
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

// succeeded withdraws the report of a duty that works again.
func (j *Janitor) succeeded(ctx context.Context, duty string) {
	j.failures.mu.Lock()
	f := j.failures.by[duty]
	delete(j.failures.by, duty)
	j.failures.mu.Unlock()
	if !f.reported.IsZero() {
		j.report(ctx, store.DutyFailure{Duty: duty})
	}
}

// report sends a report to the store. If it fails, only the report is lost: a duty that still fails is reported again,
// and an old report expires.
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
