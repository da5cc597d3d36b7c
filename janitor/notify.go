package janitor

import (
	"context"
	"slices"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
)

const (
	notifyEvery = 6 * time.Second
	// notifyTurn is the shortest time between two calls of all janitors, so there are at most 12 calls a minute.
	notifyTurn = 5 * time.Second
	// notifyBatch is how many groups, and how many operations, one call announces. More of them wait for the next call.
	notifyBatch = 100
	// lateEvery is the time between two looks at the queues. A look counts all waiting tasks.
	lateEvery = 30 * time.Second
)

// Notify configures the announcement of events.
type Notify struct {
	Kinds []store.NoticeKind
	// Queue is the queue of the tasks that announce events. Deaths in it are not announced, so a call that fails causes
	// no further calls.
	Queue    string
	MinTasks int // see store.NoticeFilter
	// OldestTask is the age of its oldest due task from which on a queue is announced as late; 0 means never. It is not
	// announced again until that age has fallen to half of the limit.
	OldestTask time.Duration
	// Compose returns the task that announces events, without a queue.
	Compose func([]store.Notice) (holdfast.NewTask, error)
}

// notify announces the events since the turn before by at most one task.
func (j *Janitor) notify(ctx context.Context) error {
	myTurn, err := j.o.Store.Turn(ctx, "notify", notifyTurn)
	if err != nil || !myTurn {
		return err
	}
	n := j.o.Notify
	filter := store.NoticeFilter{Kinds: n.Kinds, ExceptQueue: n.Queue, MinTasks: n.MinTasks, After: j.noticesAfter, Limit: notifyBatch}
	if filter.Late, filter.Well, err = j.lateQueues(ctx); err != nil {
		return err
	}
	announced, err := j.o.Store.Announce(ctx, filter, func(notices []store.Notice) (holdfast.NewTask, error) {
		task, err := n.Compose(notices)
		task.Queue = n.Queue
		if task.MaxAttempts == 0 {
			task.MaxAttempts = j.o.Settings.For(task.Type).Policy.MaxAttempts
		}
		return task, err
	})
	if err != nil {
		return err
	}
	j.noticesAfter = announced.Next
	for _, notice := range announced.Notices {
		log := j.o.Log.WithField("task", announced.Task)
		switch notice.Kind {
		case store.NoticeOperationStopped:
			o := notice.Operation
			log.WithFields(logrus.Fields{"operation": o.ID, "action": o.Action, "query": o.Query, "failed": o.Failed, "note": o.Note}).
				Warn("operation has stopped by itself")
		case store.NoticeQueueLate:
			log.WithFields(logrus.Fields{"queue": notice.Queue.Name, "oldest_due": notice.Queue.OldestDue.Round(time.Second)}).
				Warn("oldest due task of the queue is too old")
		default:
			g := notice.Group
			message := "group of dead tasks has appeared"
			if notice.Kind == store.NoticeGroupReturned {
				message = "resolved group of dead tasks has returned"
			}
			log.WithFields(logrus.Fields{
				"group": g.Fingerprint, "type": g.Type, "class": g.Class, "tasks": g.Tasks, "sample": g.Sample, "error": g.Error,
			}).Warn(message)
		}
	}
	return nil
}

// lateQueues returns the queues whose oldest due task is too old, and the names of those that are well. A queue between
// the two limits is in neither list, so that a queue at the limit is not announced again and again.
func (j *Janitor) lateQueues(ctx context.Context) (late []store.LateQueue, well []string, err error) {
	limit := j.o.Notify.OldestTask
	if limit <= 0 || !slices.Contains(j.o.Notify.Kinds, store.NoticeQueueLate) {
		return nil, nil, nil
	}
	myTurn, err := j.o.Store.Turn(ctx, "late queues", min(lateEvery, limit/10))
	if err != nil || !myTurn {
		return nil, nil, err
	}
	gates, err := j.o.Store.Gates(ctx)
	if err != nil {
		return nil, nil, err
	}
	paused := func(queue string) bool {
		return slices.ContainsFunc(gates, func(g store.Gate) bool { return g.Subject == store.Subject{Queue: queue} })
	}
	queues, err := j.o.Store.Queues(ctx)
	for _, queue := range queues {
		switch {
		case queue.Name == j.o.Notify.Queue: // a call that waits causes no further calls
		case paused(queue.Name): // a person knows that it waits
		case queue.OldestDue > limit:
			late = append(late, store.LateQueue{Name: queue.Subqueue(), OldestDue: queue.OldestDue})
		case queue.OldestDue <= limit/2:
			well = append(well, queue.Subqueue())
		}
	}
	return late, well, err
}
