package sqlite

import (
	"encoding/json"
	"strconv"
	"strings"

	"github.com/holdfastq/holdfast"
)

// taskRow is a task as sql/columns.sql selects it.
type taskRow struct {
	ID          holdfast.TaskID
	Type        string
	Lane        string
	State       holdfast.State
	UniqueKey   string `db:"unique_key"`
	Attempt     int
	MaxAttempts int `db:"max_attempts"`
	Failures    int
	Crashes     int
	Deferrals   int
	RunID       holdfast.RunID `db:"run_id"`
	NextRunAt   int64          `db:"next_run_at"`
	CreatedAt   int64          `db:"created_at"`
	StartedAt   int64          `db:"started_at"`
	FinishedAt  int64          `db:"finished_at"`
	LastError   string         `db:"last_error"`
	Parked      string
	Key         string `db:"idempotency_key"`
	Buffered    bool
}

func (r taskRow) task() holdfast.Task {
	return holdfast.Task{
		ID: r.ID, Type: r.Type, Lane: r.Lane, State: r.State, Unique: r.UniqueKey,
		Attempt: r.Attempt, MaxAttempts: r.MaxAttempts, Failures: r.Failures, Crashes: r.Crashes, Deferrals: r.Deferrals,
		Run: r.RunID, NextRunAt: moment(r.NextRunAt), CreatedAt: moment(r.CreatedAt),
		StartedAt: moment(r.StartedAt), FinishedAt: moment(r.FinishedAt),
		LastError: r.LastError, Parked: r.Parked, Key: r.Key, Buffered: r.Buffered,
	}
}

// fullRow is a task with its payload.
type fullRow struct {
	taskRow
	Payload string
}

func (r fullRow) task() holdfast.Task {
	task := r.taskRow.task()
	task.Payload = json.RawMessage(r.Payload)
	return task
}

func tasksOf(rows []taskRow) []holdfast.Task {
	tasks := make([]holdfast.Task, len(rows))
	for i, row := range rows {
		tasks[i] = row.task()
	}
	return tasks
}

type idRow struct{ ID int64 }

func idsOf(rows []idRow) []int64 {
	ids := make([]int64, len(rows))
	for i, row := range rows {
		ids[i] = row.ID
	}
	return ids
}

// Lists travel to the statements as JSON, which json_each turns into rows.

// pairs lists tickets as [[task, attempt], ...].
func pairs(tickets []holdfast.Ticket) string {
	list := make([][]int64, len(tickets))
	for i, ticket := range tickets {
		list[i] = []int64{int64(ticket.Task), int64(ticket.Attempt)}
	}
	return tuples(list)
}

// tuples writes lists of numbers.
func tuples(list [][]int64) string {
	text := append(make([]byte, 0, 16*len(list)+2), '[')
	for i, tuple := range list {
		if i > 0 {
			text = append(text, ',')
		}
		text = appendNumbers(text, tuple)
	}
	return string(append(text, ']'))
}

// numbers lists ids of any kind.
func numbers[ID ~int64](ids []ID) string {
	return string(appendNumbers(make([]byte, 0, 12*len(ids)+2), ids))
}

func appendNumbers[N ~int64](text []byte, list []N) []byte {
	text = append(text, '[')
	for i, n := range list {
		if i > 0 {
			text = append(text, ',')
		}
		text = strconv.AppendInt(text, int64(n), 10)
	}
	return append(text, ']')
}

// words lists texts of any kind.
func words[S ~string](list []S) string {
	if len(list) == 0 {
		return "[]"
	}
	text, _ := json.Marshal(list) // of strings, which cannot fail
	return string(text)
}

// clean makes text fit for a column: valid UTF-8 without NUL.
func clean(text string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(text, "\uFFFD"), "\x00", "\uFFFD")
}
