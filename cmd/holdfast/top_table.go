package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

// topTable is the table of a view.
type topTable struct {
	columns []topColumn
	rows    []topRow
}

// topColumn is a column of a table. Numbers are aligned to the right.
type topColumn struct {
	head    string
	width   int // the least width; 0 for the one column that takes what the others leave
	from    int // only on screens of at least this width
	numeric bool
}

// topRow is a row of a table. id identifies it in each reading.
type topRow struct {
	id    string
	cells []topCell
	open  topPlace // what Enter opens
}

// topCell is a cell of a table. A numeric cell is sorted by its number.
type topCell struct {
	text    string
	number  float64
	numeric bool
}

func wordCell(text string) topCell { return topCell{text: singleLine(text)} }

func numberCell(n int64) topCell { return topCell{fmt.Sprint(n), float64(n), true} }

// agoCell returns a cell with a time relative to now. It is empty for the zero time. Later times are larger.
func agoCell(now, at time.Time) topCell {
	if at.IsZero() {
		return topCell{number: math.Inf(-1), numeric: true}
	}
	return topCell{ago(now.Sub(at)), float64(at.UnixMilli()), true}
}

// topSpec is a column with the function that returns its cells.
type topSpec[T any] struct {
	topColumn
	cell func(T) topCell
}

// tableOf returns the table of a list.
func tableOf[T any](items []T, id func(T) string, open func(T) topPlace, specs []topSpec[T]) (table topTable) {
	for _, spec := range specs {
		table.columns = append(table.columns, spec.topColumn)
	}
	for _, item := range items {
		row := topRow{id: id(item), open: open(item)}
		for _, spec := range specs {
			row.cells = append(row.cells, spec.cell(item))
		}
		table.rows = append(table.rows, row)
	}
	return table
}

// filter removes the rows in which no cell contains a text. The case does not matter.
func (t *topTable) filter(text string) {
	text = strings.ToLower(text)
	t.rows = slices.DeleteFunc(t.rows, func(row topRow) bool {
		return !slices.ContainsFunc(row.cells, func(cell topCell) bool { return strings.Contains(strings.ToLower(cell.text), text) })
	})
}

// sort sorts the rows by the column with a head. Rows with equal cells keep their order.
func (t *topTable) sort(head string, descending bool) {
	i := slices.IndexFunc(t.columns, func(c topColumn) bool { return c.head == head })
	if i < 0 {
		return
	}
	slices.SortStableFunc(t.rows, func(a, b topRow) int {
		x, y := a.cells[i], b.cells[i]
		order := cmp.Or(cmp.Compare(x.number, y.number), cmp.Compare(strings.ToLower(x.text), strings.ToLower(y.text)))
		if x.numeric && y.numeric {
			order = cmp.Compare(x.number, y.number)
		}
		if descending {
			return -order
		}
		return order
	})
}

// queueTable returns the queues, and the AMQP queues of no queue that have messages.
func queueTable(queues []surface.Queue, meter *topMeter) topTable {
	queues = slices.DeleteFunc(slices.Clone(queues), func(q surface.Queue) bool {
		return q.QueueCounts == nil && (q.Messages == nil || *q.Messages == 0)
	})
	several := make(map[string]int) // priorities of a queue
	for _, q := range queues {
		several[q.Queue]++
	}
	count := func(cell func(surface.QueueCounts) topCell) func(surface.Queue) topCell {
		return func(q surface.Queue) topCell {
			if q.QueueCounts == nil {
				return topCell{number: -1, numeric: true}
			}
			return cell(*q.QueueCounts)
		}
	}
	label := func(q surface.Queue) string {
		if q.Kind == surface.KindQueue && several[q.Queue] > 1 {
			return q.Queue + " " + q.Priority
		}
		return queueLabel(q)
	}
	subqueue := func(q surface.Queue) string {
		var priority holdfast.Priority
		_ = priority.UnmarshalText([]byte(q.Priority)) // an AMQP queue has no priority and no rates
		return holdfast.Subqueue(q.Queue, priority)
	}
	rate := func(numbers func(topSample) map[string]int64) func(surface.Queue) topCell {
		return func(q surface.Queue) topCell {
			if q.QueueCounts == nil {
				return topCell{number: -1, numeric: true}
			}
			name := subqueue(q)
			return meter.rate(func(s topSample) int64 { return numbers(s)[name] })
		}
	}
	open := func(q surface.Queue) topPlace {
		if q.QueueCounts == nil {
			return topPlace{}
		}
		query := "queue:" + q.Queue
		if several[q.Queue] > 1 {
			query += " priority:" + q.Priority
		}
		return topPlace{want: topWant{view: viewTasks, query: query + " state:ready,running,dead"}, title: "tasks"}
	}
	return tableOf(queues, label, open, []topSpec[surface.Queue]{
		{topColumn{head: "queue"}, func(q surface.Queue) topCell { return wordCell(label(q)) }},
		{topColumn{head: "ready", width: 7, numeric: true}, count(func(q surface.QueueCounts) topCell { return numberCell(q.Ready) })},
		{topColumn{head: "due", width: 6, numeric: true}, count(func(q surface.QueueCounts) topCell { return numberCell(q.Due) })},
		{topColumn{head: "running", width: 8, numeric: true}, count(func(q surface.QueueCounts) topCell { return numberCell(q.Running) })},
		{topColumn{head: "blocked", width: 8, numeric: true}, count(func(q surface.QueueCounts) topCell {
			return topCell{blockedText(q), float64(q.Blocked), true}
		})},
		{topColumn{head: "oldest", width: 7, numeric: true}, count(func(q surface.QueueCounts) topCell {
			return topCell{unit(time.Duration(q.Oldest)), time.Duration(q.Oldest).Seconds(), true}
		})},
		{topColumn{head: "in/s", width: 6, from: 90, numeric: true}, rate(func(s topSample) map[string]int64 { return s.stored })},
		{topColumn{head: "done/s", width: 7, numeric: true}, rate(func(s topSample) map[string]int64 { return s.done })},
		{topColumn{head: "workers", width: 8, from: 100, numeric: true}, count(func(q surface.QueueCounts) topCell { return numberCell(int64(q.Workers)) })},
		{topColumn{head: "messages", width: 9, from: 110, numeric: true}, func(q surface.Queue) topCell {
			if q.Messages == nil {
				return topCell{number: -1, numeric: true}
			}
			return numberCell(int64(*q.Messages))
		}},
		{topColumn{head: "paused", width: 8}, count(func(q surface.QueueCounts) topCell {
			if q.Paused == nil {
				return topCell{}
			}
			return wordCell("by " + q.Paused.Name)
		})},
	})
}

func workerTable(workers []surface.Worker, now time.Time) topTable {
	open := func(w surface.Worker) topPlace {
		return topPlace{want: topWant{view: viewTasks, query: "worker:" + w.Worker.String()}, title: "tasks of " + workerName(singleLine(w.Name), w.Worker)}
	}
	return tableOf(workers, func(w surface.Worker) string { return w.Worker.String() }, open, []topSpec[surface.Worker]{
		{topColumn{head: "worker"}, func(w surface.Worker) topCell { return wordCell(w.Name) }},
		{topColumn{head: "running", width: 12, numeric: true}, func(w surface.Worker) topCell {
			return topCell{fmt.Sprintf("%d of %d", w.Running, w.Concurrency), float64(w.Running), true}
		}},
		{topColumn{head: "stuck", width: 6, numeric: true}, func(w surface.Worker) topCell {
			return topCell{stuckHandlers(w), float64(len(w.Stuck) + w.Abandoned), true}
		}},
		{topColumn{head: "renewed", width: 8, numeric: true}, func(w surface.Worker) topCell { return agoCell(now, w.RenewedAt) }},
		{topColumn{head: "started", width: 8, from: 100, numeric: true}, func(w surface.Worker) topCell { return agoCell(now, w.StartedAt) }},
		{topColumn{head: "version", width: 12, from: 110}, func(w surface.Worker) topCell { return wordCell(w.Version) }},
		{topColumn{head: "state", width: 9}, func(w surface.Worker) topCell {
			if w.Draining {
				return wordCell("draining")
			}
			return wordCell(string(w.State))
		}},
		{topColumn{head: "queues", width: 12}, func(w surface.Worker) topCell { return wordCell(takes(w)) }},
	})
}

func groupTable(groups []store.DeathGroup, now time.Time) topTable {
	open := func(g store.DeathGroup) topPlace {
		return topPlace{want: topWant{view: viewTasks, query: surface.GroupQuery(g.Fingerprint)}, title: "tasks"}
	}
	return tableOf(groups, func(g store.DeathGroup) string { return g.Fingerprint }, open, []topSpec[store.DeathGroup]{
		{topColumn{head: "tasks", width: 7, numeric: true}, func(g store.DeathGroup) topCell { return numberCell(g.Tasks) }},
		{topColumn{head: "last hour", width: 10, from: 100, numeric: true}, func(g store.DeathGroup) topCell { return numberCell(g.LastHour) }},
		{topColumn{head: "last", width: 8, numeric: true}, func(g store.DeathGroup) topCell { return agoCell(now, g.LastAt) }},
		{topColumn{head: "state", width: 8}, func(g store.DeathGroup) topCell { return wordCell(string(g.State)) }},
		{topColumn{head: "owner", width: 12, from: 110}, func(g store.DeathGroup) topCell { return wordCell(g.Owner) }},
		{topColumn{head: "title"}, func(g store.DeathGroup) topCell { return wordCell(surface.GroupTitle(g) + ": " + g.Error) }},
	})
}

func taskTable(tasks []surface.ListedTask, now time.Time) topTable {
	open := func(t surface.ListedTask) topPlace {
		return topPlace{want: topWant{view: viewTask, task: t.ID}, title: "task " + t.ID.String()}
	}
	return tableOf(tasks, func(t surface.ListedTask) string { return t.ID.String() }, open, []topSpec[surface.ListedTask]{
		{topColumn{head: "id", width: 7, numeric: true}, func(t surface.ListedTask) topCell { return numberCell(int64(t.ID)) }},
		{topColumn{head: "type", width: 12}, func(t surface.ListedTask) topCell { return wordCell(t.Type) }},
		{topColumn{head: "queue", width: 12, from: 100}, func(t surface.ListedTask) topCell { return wordCell(t.Queue) }},
		{topColumn{head: "state", width: 9}, func(t surface.ListedTask) topCell { return wordCell(string(t.State)) }},
		{topColumn{head: "failures", width: 9, numeric: true}, func(t surface.ListedTask) topCell {
			return topCell{failures(t.Task), float64(t.Failures), true}
		}},
		{topColumn{head: "created", width: 8, from: 100, numeric: true}, func(t surface.ListedTask) topCell { return agoCell(now, t.CreatedAt) }},
		{topColumn{head: "due", width: 8, from: 110, numeric: true}, func(t surface.ListedTask) topCell { return agoCell(now, due(t.Task)) }},
		{topColumn{head: "note"}, func(t surface.ListedTask) topCell { return wordCell(note(t)) }},
	})
}
