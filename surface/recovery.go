package surface

import (
	"time"

	"github.com/holdfastq/holdfast/janitor"
)

// QueueRecovery is the part of a RecoveryPlan for one queue.
type QueueRecovery struct {
	Queue         string   `json:"queue"`
	Missing       []string `json:"missing" doc:"The AMQP queues of the queue that do not exist."`
	TicketedTasks int64    `json:"ticketed_tasks"`
	LostTickets   int64    `json:"lost_tickets"`
	DueTasks      int64    `json:"due_tasks"`
}

// RecoveryPlan says what the broker has lost, and how long a recovery takes.
type RecoveryPlan struct {
	BrokerLost      bool            `json:"broker_lost" doc:"The broker has lost its data, or is a new one."`
	Objects         int             `json:"objects" doc:"How many AMQP queues and exchanges must exist."`
	Missing         []string        `json:"missing" doc:"Those that do not exist."`
	LostTickets     int64           `json:"lost_tickets"`
	DueTasks        int64           `json:"due_tasks"`
	ExpectedSeconds float64         `json:"expected_seconds"`
	Queues          []QueueRecovery `json:"queues"`
}

// RecoveryPlanOf returns the form of a plan.
func RecoveryPlanOf(plan janitor.RecoveryPlan) RecoveryPlan {
	return RecoveryPlan{
		plan.BrokerLost, plan.Objects, append([]string{}, plan.Missing...), plan.Lost, plan.Due, plan.Expected.Round(100 * time.Millisecond).Seconds(),
		Each(plan.Queues, func(q janitor.QueueRecovery) QueueRecovery {
			return QueueRecovery{q.Queue, append([]string{}, q.Missing...), q.Ticketed, q.Lost, q.Due}
		}),
	}
}

// Recovered is the result of a recovery.
type Recovered struct {
	Declared         []string `json:"declared"`
	RenewedTickets   int64    `json:"renewed_tickets"`
	RepairedTasks    int64    `json:"repaired_tasks"`
	PublishedTickets int64    `json:"published_tickets"`
}

// RecoveredOf returns the form of the report of a recovery.
func RecoveredOf(report janitor.RecoveryReport) Recovered {
	return Recovered{append([]string{}, report.Missing...), report.Renewed, report.Repaired, report.Published}
}
