package store

import (
	"context"
	"time"

	"github.com/holdfastq/holdfast/internal/message"
)

// Repair restores tickets that are gone.
type Repair interface {
	// Unticket makes ready tasks due again at once, so that they get a new ticket:
	// those of the tickets, if they stand at that attempt. Tasks that wait for a later time and
	// have no ticket are left alone. It returns how many it changed.
	Unticket(ctx context.Context, tickets []message.Ticket) (int, error)
	// UnticketLane does so for every ticketed ready task of a lane, in small steps:
	// after an error some are changed, and calling it again does the rest.
	UnticketLane(ctx context.Context, lane string) (int, error)
	// UnticketLost does so for tasks whose tickets are proved lost, also in small steps. A sentinel of the lane was sent
	// after them and has come out, and so has another one that was sent at least slack after that: a worker that had
	// received a ticket has claimed it or returned it by then, and a returned ticket comes out first. The tickets are
	// older than the first sentinel by slack or ten seconds, whichever is less, for new tasks count as ticketed a moment
	// before they are; and by ten times slack if they are Again, because a sentinel says nothing about the requeue
	// queue. It returns how many tickets are lost, and how many are replaced in doubt: those of tasks that are Again,
	// which may still wait there, and all of a step while a live run says that all its executors are busy, because a
	// worker without room may hold or return the same ticket whenever a sentinel goes past it. A call holds the newest sentinel that has come out, and a later call makes it the proof. A proof counts
	// until a later one replaces it. Tasks that a receipt may cover are spared. If a call has found no lost ticket for a
	// few seconds, it ends, and the next call of any process goes on from there. Its cost depends on the number of tasks
	// that are ticketed or new, not on the number of all tasks; once a day it looks at all tasks.
	UnticketLost(ctx context.Context, slack time.Duration) (lost, doubtful int, err error)
	// SentinelsDue picks the lanes that need a sentinel now, at most one every interval and none while an earlier one
	// is still on its way for less than lost, and marks them as sent. It ignores times of a lane's sentinels that lie
	// more than two seconds in the future: the clock was set back since then.
	SentinelsDue(ctx context.Context, interval, lost time.Duration) ([]message.Sentinel, error)
}
