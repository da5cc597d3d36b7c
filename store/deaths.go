package store

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast"
)

// Deaths groups dead tasks by cause. Two tasks with the same fingerprint have the same cause; see
// [holdfast.Fingerprint].
//
// Apply records the fingerprint of a task that dies, and deletes the record of a task that leaves the state dead. Three
// kinds of tasks have no record or an outdated one until RecordDeaths is called: those that died or were retried under a
// build without records, those that were restored from the archive, and those that were imported.
type Deaths interface {
	// DeathGroups returns the groups with at least one dead task that matches f, the largest first.
	DeathGroups(ctx context.Context, f DeathFilter) ([]DeathGroup, error)
	// RecordDeaths adds missing records and deletes outdated ones, at most limit of each. It returns the number of
	// added and deleted records, which is 0 if every record is right.
	RecordDeaths(ctx context.Context, limit int) (int, error)
}

// DeathFilter selects dead tasks. The zero value selects all.
type DeathFilter struct {
	Type        string
	Queue       string
	Fingerprint string
	// Since and Until, if not zero, select the tasks that died in [Since, Until).
	Since, Until time.Time
	Limit        int // at most this many groups; 0 means 50
}

// DeathGroup describes the dead tasks with one fingerprint that match a filter.
type DeathGroup struct {
	Fingerprint string
	Type        string
	Class       string // of the error
	Host        string // of the target, for deliveries
	Status      int    // of the response, for deliveries; 0 if none arrived
	Tasks       int64
	LastHour    int64 // the tasks among them that died in the last hour
	FirstAt     time.Time
	LastAt      time.Time
	Sample      holdfast.TaskID // the task among them with the highest id
	Error       string          // the last error of the sample
}
