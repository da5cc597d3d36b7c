package memory

import (
	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

// fingerprint returns the fingerprint of a dead task, and "" for any other task.
func (t *Task) fingerprint() string {
	if t.State != holdfast.Dead {
		return ""
	}
	return holdfast.Fingerprint(t.Type, t.lastReport())
}

// lastReport returns the report of the last attempt of a dead task.
func (t *Task) lastReport() holdfast.Report {
	if len(t.Attempts) == 0 {
		return holdfast.Report{Error: t.LastError}
	}
	return t.Attempts[len(t.Attempts)-1].Report()
}

// matchesDeath reports whether the record of a death matches the filter.
func matchesDeath(f *store.Filter, task *Task) bool {
	if f.Fingerprint == "" && f.Class == "" && f.Host == "" && f.Status == 0 {
		return true
	}
	if task.State != holdfast.Dead {
		return false
	}
	report := task.lastReport()
	host, status := report.Target()
	return (f.Fingerprint == "" || task.fingerprint() == f.Fingerprint) &&
		(f.Class == "" || report.Class == f.Class) &&
		(f.Host == "" || host == f.Host) &&
		(f.Status == 0 || status == f.Status)
}
