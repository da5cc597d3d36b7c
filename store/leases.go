package store

import (
	"context"
	"encoding/json"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/message"
)

// Leases registers workers and renews their leases.
type Leases interface {
	// RegisterWorker registers a worker with a lease of the given length and returns its id. Ids increase, and their last
	// six digits are random: otherwise a store that has lost commits would assign the id of a lost worker again, and the
	// process of that worker could write its results to the tasks of the new one. The queues in info are known from then
	// on, so that a janitor declares their AMQP queues. The schemas in info replace those of earlier workers; see
	// Inspector.TypeSchemas.
	RegisterWorker(ctx context.Context, info WorkerInfo, lease time.Duration) (holdfast.WorkerID, error)
	// Renew extends the lease to now + r.Lease, stores the page cursors and returns what the worker must know. Returns
	// ErrFenced if the worker is not live.
	Renew(ctx context.Context, r Renewal) (RenewResult, error)
	// DeregisterWorker ends a worker. The caller has handed back all tasks. If the worker is not live, DeregisterWorker
	// does nothing.
	//
	// clean means that the worker certainly owns no task: the store answered each of its claims, and has lost no commit
	// since. Then Fencing.Abandoned looks for tasks of this worker only when it checks all tasks, every few minutes.
	DeregisterWorker(ctx context.Context, worker holdfast.WorkerID, clean bool) error
	// Drain requests the shutdown of a live worker. Returns ErrNotFound if the worker does not exist, and ErrConflict
	// if it has ended.
	Drain(ctx context.Context, worker holdfast.WorkerID) error
	// Workers returns the live workers, newest first. If all is true, it also returns the workers that have ended.
	Workers(ctx context.Context, all bool) ([]Worker, error)
}

// WorkerInfo describes a worker, for people.
type WorkerInfo struct {
	Name        string // identifies the process, for example host/pid
	Host        string
	PID         int
	Version     string
	Concurrency int
	Queues      []string // empty means every queue
	Types       []string // the task types that it has handlers for; nil if unknown
	// Schemas has the JSON Schemas of the payloads that the handlers accept, by type. A type of Types that is missing here
	// accepts any payload. Leases.Workers does not return them.
	Schemas map[string]json.RawMessage
	// Process distinguishes the process from others of its machine that had the same PID. It is zero if the system does
	// not report it. Leases.Workers does not return it.
	Process Process
}

// Process identifies a process of a machine, together with its PID.
type Process struct {
	Boot      string // identifies the boot of the machine
	Namespace string // the namespace in which PID and Started are valid
	Started   int64  // start of the process, in clock ticks since the boot
}

// WorkerState is the state of a worker.
type WorkerState string

// The states of a worker. Dead and Stopped are final.
const (
	WorkerLive    WorkerState = "live"
	WorkerDead    WorkerState = "dead"    // fenced
	WorkerStopped WorkerState = "stopped" // ended by itself, after it had handed back all tasks
)

// Worker is a stored worker.
type Worker struct {
	ID holdfast.WorkerID
	WorkerInfo
	State      WorkerState
	Draining   bool
	StartedAt  time.Time
	RenewedAt  time.Time
	LeaseUntil time.Time
	EndedAt    time.Time
	Taken      int64 // pages received
	Settled    int64 // every page up to this one is settled
	Running    int   // handlers that were running at the latest renewal
	Report     WorkerReport
	// Settings are the settings that the worker uses, by task type; nil if its build does not report them.
	Settings WorkerSettings
	// Gateless means that the build of the worker ignores gates; see Gates.
	Gateless bool
}

// Renewal is the argument of Leases.Renew.
type Renewal struct {
	Worker  holdfast.WorkerID
	Lease   time.Duration
	Taken   int64
	Settled int64
	Running int
	// Tasks are the tasks that the worker holds. A large store uses them to count and to list running tasks.
	Tasks []holdfast.TaskID
	// Present means that the process has both of its presence locks: the one in the store and the one in the broker.
	// See package presence.
	Present bool
	Report  WorkerReport
	// Settings is the JSON of the WorkerSettings that the worker uses. If it is empty, the store keeps those that it has:
	// a worker sends them only if they have changed.
	Settings json.RawMessage
	// OwnSession requests that a store with presence locks sends the renewals of the worker over a separate session.
	// While that session exists, the worker is not missing. The session ends with DeregisterWorker, with a renewal that
	// fails, and with the process.
	OwnSession bool
}

// WorkerReport is what a worker reports with each renewal, for people. No component decides by it.
type WorkerReport struct {
	// Stuck are the tasks whose handlers still run although their contexts have ended, those that have done so for the
	// longest first. A worker reports at most MaxStuck.
	Stuck []StuckTask `json:"stuck,omitempty"`
	// Abandoned is the number of handlers that still run although the worker has given up their attempts.
	Abandoned int `json:"abandoned,omitempty"`
	// Throughput is how fast the worker has recently run tasks, for the queues of which it has run any. It has at most
	// MaxThroughput entries.
	Throughput []QueueThroughput `json:"throughput,omitempty"`
}

// WorkerSettings are the settings that a worker uses for the types of its handlers, by type. They let other processes
// explain what the worker does. No component decides by them.
type WorkerSettings map[string]TypeSettings

// TypeSettings is the part of a [holdfast.TypeSettings] that a worker reports.
type TypeSettings struct {
	Policy holdfast.Policy `json:"policy"`
	// PolicyFor means that the worker has a function that may use another policy for some errors.
	PolicyFor    bool          `json:"policy_for,omitempty"`
	Timeout      time.Duration `json:"timeout,omitempty"`       // of one attempt; 0 means none
	AbandonAfter time.Duration `json:"abandon_after,omitempty"` // 0 means that the worker waits for the handler
}

// QueueThroughput is how fast a worker has recently run the tasks of a queue.
type QueueThroughput struct {
	Queue string        `json:"queue"`
	Ended int           `json:"ended"` // attempts that ended within Over
	Over  time.Duration `json:"over"`  // 10 to 20 s, or less for a new worker
	Mean  time.Duration `json:"mean"`  // execution time of the last attempts that ended
}

// MaxThroughput is for how many queues a worker reports its throughput.
const MaxThroughput = 100

// MaxStuck is how many stuck tasks a worker reports.
const MaxStuck = 100

// StuckTask is a running task whose handler ignores the end of its context.
type StuckTask struct {
	Task    holdfast.TaskID `json:"task"`
	Attempt int             `json:"attempt"`
	For     time.Duration   `json:"for"` // since the end of the context, at the renewal
}

// RenewResult is the result of Leases.Renew.
type RenewResult struct {
	// Cancelled has the running tasks of this worker that were cancelled since the latest renewal that returned.
	Cancelled []message.Ticket
	Draining  bool     // a shutdown was requested
	Queues    []string // all known queues, sorted
	Paused    []string // the queues that are paused, sorted; their tickets stay in their AMQP queues
	// History identifies the history of commits that contains the renewal. If it differs from that of an earlier
	// renewal, the store may have lost commits that it had answered; see Work.Held. A restart without loss does not
	// change it. "" means that no answered commit can be lost, or that the store cannot detect it.
	History string
}
