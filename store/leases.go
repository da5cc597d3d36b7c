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
	// RegisterWorker registers a worker with a lease of the given length and returns its id. It adds the queues in info
	// to the known queues, so that a janitor declares their AMQP queues. The schemas in info replace those of earlier
	// workers; see Inspector.TypeSchemas.
	//
	// Ids increase, and their last six digits are random. Otherwise a store that has lost commits could assign the id
	// of a lost worker again, and the process of that worker could write results to the tasks of the new one.
	RegisterWorker(ctx context.Context, info WorkerInfo, lease time.Duration) (holdfast.WorkerID, error)
	// Renew extends the lease to now + r.Lease, stores the page cursors and returns changes for the worker. It returns
	// ErrFenced if the worker is not live.
	Renew(ctx context.Context, r Renewal) (RenewResult, error)
	// DeregisterWorker ends a worker. The caller has handed back all tasks. If the worker is not live, DeregisterWorker
	// does nothing.
	//
	// clean means that the worker certainly owns no task: the store has answered each of its claims, and has lost no
	// commit since. Then Fencing.Abandoned checks this worker only when it checks all tasks, every few minutes.
	DeregisterWorker(ctx context.Context, worker holdfast.WorkerID, clean bool) error
	// Drain requests the shutdown of a live worker. It returns ErrNotFound if the worker does not exist, and
	// ErrConflict if it has ended.
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
	Types       []string // task types with a handler; nil if unknown
	// Schemas has the JSON Schemas of the payloads that the handlers accept, by type. A type of Types without a schema
	// accepts any payload. Leases.Workers does not return them.
	Schemas map[string]json.RawMessage
	// Process distinguishes the process from earlier processes of its machine with the same PID. It is zero if the
	// system does not report it. Leases.Workers does not return it.
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
	WorkerStopped WorkerState = "stopped" // deregistered after it had handed back all tasks
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
}

// Renewal is the argument of Leases.Renew.
type Renewal struct {
	Worker  holdfast.WorkerID
	Lease   time.Duration
	Taken   int64
	Settled int64
	Running int
	// Tasks are the tasks that the worker owns. A large store uses them to count and to list running tasks.
	Tasks []holdfast.TaskID
	// Present reports whether the process has both of its presence locks, at the store and at the broker. See package
	// presence.
	Present bool
	Report  WorkerReport
	// Settings is the JSON of the WorkerSettings that the worker uses. A worker sends them only if they have changed.
	// If Settings is empty, the store keeps the present ones.
	Settings json.RawMessage
	// OwnSession requests that a store with presence locks sends the renewals of the worker over a separate session.
	// While that session exists, the worker is not missing. The session ends with DeregisterWorker, with a renewal that
	// fails, and with the process.
	OwnSession bool
}

// WorkerReport is the information for people in each renewal. No component makes decisions from it.
type WorkerReport struct {
	// Stuck lists the tasks whose handlers still run although their contexts have ended, the longest stuck first. It
	// has at most MaxStuck tasks.
	Stuck []StuckTask `json:"stuck,omitempty"`
	// Abandoned is the number of handlers that still run although the worker has given up their attempts.
	Abandoned int `json:"abandoned,omitempty"`
	// Throughput is the recent rate at which the worker has run tasks, for each queue of which it has run any. It has
	// at most MaxThroughput entries.
	Throughput []QueueThroughput `json:"throughput,omitempty"`
}

// WorkerSettings are the settings of a worker for the types of its handlers. With them, other processes can explain the
// actions of the worker. No component makes decisions from them.
type WorkerSettings map[string]TypeSettings

// TypeSettings is the part of a [holdfast.TypeSettings] that a worker reports.
type TypeSettings struct {
	Policy holdfast.Policy `json:"policy"`
	// PolicyFor means that a function of the worker may use another policy for some errors.
	PolicyFor    bool          `json:"policy_for,omitempty"`
	Timeout      time.Duration `json:"timeout,omitempty"`       // of one attempt; 0 means none
	AbandonAfter time.Duration `json:"abandon_after,omitempty"` // 0 means that the worker waits for the handler
}

// QueueThroughput is the recent rate at which a worker has run the tasks of a queue.
type QueueThroughput struct {
	Queue string        `json:"queue"`
	Ended int           `json:"ended"` // attempts that ended within Over
	Over  time.Duration `json:"over"`  // 10 to 20 s, or less for a new worker
	Mean  time.Duration `json:"mean"`  // execution time of the last attempts that ended
}

// MaxThroughput is the maximum number of queues for which a worker reports its throughput.
const MaxThroughput = 100

// MaxStuck is the maximum number of stuck tasks that a worker reports.
const MaxStuck = 100

// StuckTask is a running task whose handler ignores the end of its context.
type StuckTask struct {
	Task    holdfast.TaskID `json:"task"`
	Attempt int             `json:"attempt"`
	For     time.Duration   `json:"for"` // time from the end of the context to the renewal
}

// RenewResult is the result of Leases.Renew.
type RenewResult struct {
	// Cancelled has the tickets of this worker's running tasks that were cancelled since the last renewal that
	// returned.
	Cancelled []message.Ticket
	Draining  bool     // a person has requested a shutdown
	Queues    []string // all known subqueues and type queues, sorted
	Paused    []string // paused queues, sorted; their tickets stay in their AMQP queues
	// History identifies the history of commits that contains the renewal. If it differs from that of an earlier
	// renewal, the store may have lost commits that it had answered; see Work.Held. A restart without loss does not
	// change it. "" means that no answered commit can be lost, or that the store cannot detect a loss.
	History string
}
