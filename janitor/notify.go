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
	// notifyTurn is the minimum time between two turns of all janitors. So janitors make at most 12 calls a minute.
	notifyTurn = 5 * time.Second
	// notifyBatch is the maximum number of groups, and of operations, that one call announces. The others wait for the
	// next call.
	notifyBatch = 100
	// lateEvery is the time between two checks of the queues. A check counts all waiting tasks.
	lateEvery = 30 * time.Second
)

// Notify configures the announcement of events.
type Notify struct {
	Kinds []store.NoticeKind
	// Queue is the queue of the tasks that announce events. Deaths in this queue are not announced, so a failing call
	// causes no further calls.
	Queue    string
	MinTasks int // see store.NoticeFilter
	// OldestTask is a limit for the age of a queue's oldest due task. Above it, the queue is announced as late, and not
	// again until the age has fallen to half of the limit. 0 means that no queue is announced.
	OldestTask time.Duration
	// Compose returns the task that announces events. The janitor sets its queue.
	Compose func([]store.Notice) (holdfast.NewTask, error)
}

// notify announces the events since the last turn by at most one task.
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
	announced, err := j.o.Desk.Announce(ctx, filter, func(notices []store.Notice) (holdfast.NewTask, error) {
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

// lateQueues returns the queues whose oldest due task is above the limit, and the names of the queues whose oldest due
// task is below half of it. A queue in between is in neither list, so that it is not announced repeatedly.
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
		case queue.Name == j.o.Notify.Queue: // a waiting call causes no further calls
		case paused(queue.Name): // a person has stopped it on purpose
		case queue.OldestDue > limit:
			late = append(late, store.LateQueue{Name: queue.Subqueue(), OldestDue: queue.OldestDue})
		case queue.OldestDue <= limit/2:
			well = append(well, queue.Subqueue())
		}
	}
	return late, well, err
}
