package queuetest_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/queue"
	"github.com/holdfastq/holdfast/queue/queuetest"
)

// scheduled returns a queue with schedules, and the moments of the tasks that the handler has run.
func scheduled(t testing.TB, schedules ...queue.Schedule) (q *queuetest.Queue, ran *[]string) {
	t.Helper()
	q, ran = queuetest.New(t), new([]string)
	handle := func(_ context.Context, task holdfast.Task, name string) error {
		at, _ := queue.ScheduledFor(task)
		*ran = append(*ran, name+" "+at.Format("02T15:04:05"))
		return nil
	}
	if err := queue.Handle(q.Client, "report", handle); err != nil {
		t.Fatal(err)
	}
	for _, s := range schedules {
		if _, err := q.Schedule(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	return q, ran
}

func requireRan(t *testing.T, ran *[]string, want string) {
	t.Helper()
	if got := strings.Join(*ran, ", "); got != want {
		t.Errorf("ran %q, want %q", got, want)
	}
}

func TestFireSchedule(t *testing.T) {
	t.Parallel()
	q, ran := scheduled(t,
		queue.Cron("nightly", "30 2 * * *", "report", "n", queue.Timezone("Europe/Berlin"), queue.Key("k")),
		queue.Every("hourly", time.Hour, "report", "h"))
	task := q.FireSchedule("nightly")
	if at, ok := queue.ScheduledFor(task); !ok || !at.Equal(q.Now()) || q.Now().Format(time.DateTime) != "2000-01-01 01:30:00" {
		t.Errorf("task for %v at %v", at, q.Now())
	}
	if task.Key != "k" || task.State != holdfast.Ready || string(task.Payload) != `"n"` {
		t.Errorf("task %+v", task)
	}
	q.RunDue()
	requireRan(t, ran, "h 01T01:00:00, n 01T01:30:00")
	q.FireSchedule("nightly") // hourly stores its task at 02:00, which stays open
	q.RunDue()
	requireRan(t, ran, "h 01T01:00:00, n 01T01:30:00, h 01T02:00:00, n 02T01:30:00")
}

// Schedules store tasks while the clock passes their moments, and not twice.
func TestAdvanceFiresSchedules(t *testing.T) {
	t.Parallel()
	q, ran := scheduled(t,
		queue.Every("skip", 10*time.Minute, "report", "s"),
		queue.Every("wait", 20*time.Minute, "report", "w", queue.Overlap(queue.QueueOne)),
		queue.Every("two", 30*time.Minute, "report", "t", queue.Overlap(2)),
		queue.Every("later", 24*time.Hour, "report", "l"))
	q.Advance(10 * time.Hour)
	if n := len(q.Tasks(holdfast.Ready)); n != 4 {
		t.Errorf("%d tasks are ready, want 1 of skip, 1 of wait and 2 of two", n)
	}
	q.RunDue()
	q.RunDue()
	requireRan(t, ran, "s 01T00:10:00, w 01T00:20:00, t 01T00:30:00, t 01T01:00:00")
	q.Advance(time.Second) // the moment that has waited
	q.RunDue()
	requireRan(t, ran, "s 01T00:10:00, w 01T00:20:00, t 01T00:30:00, t 01T01:00:00, w 01T00:40:00")
}

// RunDue uses due moments and returns although schedules never end. RunAll and RunOne use none.
func TestSchedulesAndRuns(t *testing.T) {
	t.Parallel()
	q, ran := scheduled(t, queue.Every("s", time.Minute, "report", "s", queue.RunAtStart()))
	q.RunAll()
	requireRan(t, ran, "")
	q.RunDue()
	requireRan(t, ran, "s 01T00:00:00")
	q.RunAll()
	enqueue(t, q, "report", "one", queue.In(150*time.Second))
	q.RunOne()
	requireRan(t, ran, "s 01T00:00:00, one 01T00:00:00")
	q.RunDue() // the last of the missed moments
	requireRan(t, ran, "s 01T00:00:00, one 01T00:00:00, s 01T00:02:00")
	q.RunDue()
	if len(*ran) != 3 {
		t.Errorf("ran %v", *ran)
	}
}

// A schedule ends with its last moment.
func TestFireTheLastMoment(t *testing.T) {
	t.Parallel()
	end := time.Date(2000, 1, 1, 2, 30, 0, 0, time.UTC)
	q, _ := scheduled(t, queue.Cron("s", "@hourly", "report", "s", queue.EndAt(end)))
	q.FireSchedule("s")
	q.RunDue()
	if at, _ := queue.ScheduledFor(q.FireSchedule("s")); at.Hour() != 2 {
		t.Errorf("the last moment is %v", at)
	}
	result, err := q.Schedule(t.Context(), queue.Cron("s", "@hourly", "report", "s", queue.EndAt(end)))
	if err != nil || result.Change != queue.ScheduleEnded {
		t.Errorf("the declaration after the end: %+v, %v", result, err)
	}
}

func TestFireScheduleFails(t *testing.T) {
	t.Parallel()
	hourly := queue.Cron("s", "@hourly", "report", "s")
	for want, call := range map[string]func(q *queuetest.Queue){
		"there is no schedule none": func(q *queuetest.Queue) { q.FireSchedule("none") },
		"schedule s is paused": func(q *queuetest.Queue) {
			must(t, q.PauseSchedule(t.Context(), "s", ""))
			q.FireSchedule("s")
		},
		"open tasks: 1": func(q *queuetest.Queue) {
			q.FireSchedule("s")
			q.FireSchedule("s")
		},
	} {
		text := fatalText(t, call, func(q *queuetest.Queue) {
			_, err := q.Schedule(t.Context(), hourly)
			must(t, err)
		})
		if !strings.Contains(text, want) {
			t.Errorf("failed with %q, want %q", text, want)
		}
	}
}

// A year passes fast, even if a schedule has a due moment each second.
func TestAdvanceIsFast(t *testing.T) {
	t.Parallel()
	q, _ := scheduled(t, queue.Every("s", time.Second, "report", "s"), queue.Every("w", time.Second, "report", "w", queue.Overlap(queue.QueueOne)))
	q.Advance(365 * 24 * time.Hour)
	if n := len(q.Tasks()); n != 2 {
		t.Errorf("%d tasks, want 2", n)
	}
}
