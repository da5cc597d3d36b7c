package flow

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/internal/slots"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/store/internal/scan"
	"github.com/holdfastq/holdfast/store/internal/transact"
)

const (
	// maxArrivals is the number of arrivals that a pass reads. During a pass, no other transaction can write to a file.
	// For so many arrivals it takes about 20 ms.
	maxArrivals = 2000
	// slotLook is the time until the next pass, which finds free slots, if no other event starts one earlier.
	slotLook = 100 * time.Millisecond
	// topicSweep is the number of rows that a step of the sweep reads. sweepEvery is the time between steps.
	topicSweep = 5000
	// quietLook is the time between two passes while no task waits. Such passes correct rows and advance cursors.
	quietLook = time.Second
	// maxPast limits the topics without waiting tasks whose turns a process remembers.
	maxPast = 20_000
)

// quiet reports whether quietLook has passed since the last pass.
func (t *Topics) quiet() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return time.Since(t.lookedAt) > quietLook
}

// giveSlots makes one pass, which gives slots to about limit tasks of each queue. If another process does that,
// giveSlots does nothing.
func (t *Topics) giveSlots(ctx context.Context, limit int) (store.Released, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.lookedAt = time.Now()
	var released store.Released
	err := t.transactions.Transact(ctx, "give slots to topics", func(ctx context.Context, tx transact.Transaction) error {
		released = store.Released{Next: 2 * slotLook}
		if _, err := tx.Change(ctx, "topic_settings"); err != nil {
			return err
		}
		var last []struct{ ID int64 }
		if err := tx.Read(ctx, "topic_last", &last); err != nil {
			return err
		}
		own, err := tx.Change(ctx, "topic_look", t.self, last[0].ID)
		if err != nil || own == 0 {
			return err
		}
		giving := &slotGiving{Topics: t, limit: limit, now: time.Now()}
		if err := giving.sweep(ctx, tx); err != nil {
			return err
		}
		released, err = giving.look(ctx, tx)
		return err
	})
	return released, err
}

// slotGiving is the state of a pass, which is one transaction.
type slotGiving struct {
	*Topics
	limit    int
	now      time.Time
	arrivals int // number of arrivals that the pass has read
}

// topicQueue is what a pass has read about a queue.
type topicQueue struct {
	slots.Queue
	subqueues []string // subqueues in which tasks wait
	lowest    float64  // the lowest turn
}

// look takes back slots that are no longer needed, and gives slots to waiting tasks.
func (l *slotGiving) look(ctx context.Context, tx transact.Transaction) (store.Released, error) {
	queues, err := l.takeBack(ctx, tx)
	if err != nil {
		return store.Released{}, err
	}
	if err := l.readTurns(ctx, tx, queues); err != nil {
		return store.Released{}, err
	}
	executors, err := executorsOf(ctx, tx)
	if err != nil {
		return store.Released{}, err
	}
	released := store.Released{Next: 2 * slotLook}
	if l.arrivals == maxArrivals { // more may have arrived
		released.Next = 0
	}
	for _, name := range slices.Sorted(maps.Keys(queues)) {
		q := queues[name]
		if len(q.subqueues) == 0 {
			continue
		}
		q.Executors = executors(name)
		given, more, err := l.give(ctx, tx, q)
		if err != nil {
			return released, err
		}
		released.Tasks += given
		if q.Executors > 0 {
			released.Waiting, released.Next = true, min(released.Next, slotLook)
		}
		if more {
			released.Next = 0
		}
	}
	return released, nil
}

// takeBack takes back slots that their tasks no longer need. It returns the data of each queue.
func (l *slotGiving) takeBack(ctx context.Context, tx transact.Transaction) (map[string]*topicQueue, error) {
	var rows []struct {
		Queue, Topic   string
		Held, Released int
	}
	if err := tx.Read(ctx, "topic_release", &rows); err != nil {
		return nil, err
	}
	if _, err := tx.Change(ctx, "topic_released"); err != nil {
		return nil, err
	}
	queues := make(map[string]*topicQueue)
	back := make(map[string]map[string]int) // by queue and topic
	for _, row := range rows {
		name, _ := holdfast.SplitSubqueue(row.Queue)
		q := l.queue(queues, name)
		if row.Held > 0 {
			q.Held[row.Topic] += row.Held
		}
		if row.Released > 0 {
			if back[name] == nil {
				back[name] = make(map[string]int)
			}
			back[name][row.Topic] += row.Released
		}
	}
	for name, rates := range l.rates {
		rates.Observe(l.now, back[name])
		if queues[name] == nil && rates.Idle() {
			delete(l.rates, name)
		}
	}
	return queues, nil
}

// queue returns the data of a queue. It creates the data if there is none.
func (l *slotGiving) queue(queues map[string]*topicQueue, name string) *topicQueue {
	if queues[name] == nil {
		if l.rates[name] == nil {
			l.rates[name] = new(slots.Rates)
			l.rates[name].Observe(l.now, nil)
		}
		queues[name] = &topicQueue{Queue: slots.Queue{Rates: l.rates[name], Held: make(map[string]int)}}
	}
	return queues[name]
}

// readTurns reads the subqueues in which tasks wait. It stores the first turns of topics in which tasks have begun to
// wait.
func (l *slotGiving) readTurns(ctx context.Context, tx transact.Transaction, queues map[string]*topicQueue) error {
	type turn struct {
		Queue string   `json:"queue"`
		Topic string   `json:"topic"`
		Turn  *float64 `json:"turn"`
	}
	var arrived, heads []turn
	if err := tx.Read(ctx, "topic_heads", &heads); err != nil {
		return err
	}
	for _, head := range heads {
		name, _ := holdfast.SplitSubqueue(head.Queue)
		q := l.queue(queues, name)
		if len(q.subqueues) == 0 || *head.Turn < q.lowest {
			q.lowest = *head.Turn
		}
		q.subqueues = append(q.subqueues, head.Queue)
	}
	l.forget(queues)
	err := tx.Read(ctx, "topic_arrived", &arrived, maxArrivals)
	if l.arrivals = len(arrived); err != nil || len(arrived) == 0 {
		return err
	}
	for i := range arrived {
		name, _ := holdfast.SplitSubqueue(arrived[i].Queue)
		q := l.queue(queues, name)
		if !slices.Contains(q.subqueues, arrived[i].Queue) {
			q.subqueues = append(q.subqueues, arrived[i].Queue)
		}
		begin := max(q.lowest, l.past[part{arrived[i].Queue, arrived[i].Topic}])
		arrived[i].Turn = &begin
	}
	_, err = tx.Change(ctx, "topic_begin", transact.Encode(arrived))
	return err
}

// forget deletes the turns of topics without waiting tasks if the turns of all other topics are higher.
func (l *slotGiving) forget(queues map[string]*topicQueue) {
	if len(l.past) > maxPast {
		clear(l.past)
	}
	for p, turn := range l.past {
		name, _ := holdfast.SplitSubqueue(p.subqueue)
		if q := queues[name]; q == nil || len(q.subqueues) == 0 || turn <= q.lowest {
			delete(l.past, p)
		}
	}
}

// flow is a topic in one subqueue.
type flow struct {
	slots.Flow
	Queue string            // the subqueue
	most  int               // number of tasks that can get slots
	tasks []holdfast.TaskID // the first waiting tasks
}

// give gives the free slots of a queue to tasks. It returns the number of these tasks, and whether another pass may
// give more slots at once.
func (l *slotGiving) give(ctx context.Context, tx transact.Transaction, q *topicQueue) (given int, more bool, err error) {
	free := min(q.Free(), l.limit)
	if free == 0 {
		return 0, false, nil
	}
	flows, err := l.flows(ctx, tx, q, free)
	if err != nil {
		return 0, false, err
	}
	if err := l.candidates(ctx, tx, q, flows, free); err != nil {
		return 0, false, err
	}
	q.Give(scan.Map(flows, func(f *flow) *slots.Flow { return &f.Flow }), free)
	given, err = l.admit(ctx, tx, flows)
	if err != nil {
		return 0, false, err
	}
	chosen := 0
	for _, f := range flows {
		chosen += f.Given
	}
	return given, given == l.limit || given < chosen, nil
}

// executorsOf returns a function. That function returns the number of executors of the live workers of a queue.
func executorsOf(ctx context.Context, tx transact.Reader) (func(queue string) int, error) {
	var rows []struct {
		Queue string
		N     int
	}
	if err := tx.Read(ctx, "topic_executors", &rows); err != nil {
		return nil, err
	}
	return func(queue string) (n int) {
		for _, row := range rows {
			if row.Queue == "" || row.Queue == queue {
				n += row.N
			}
		}
		return n
	}, nil
}

// turnRow is a topic in which tasks wait.
type turnRow struct {
	Queue, Topic string
	Turn         float64
	Weight       int
}

// flows returns the topics that get the next slots. It also returns the topics with earlier turns that may have no more
// slots, so that their turns do not fall behind. Otherwise they would later get the slots of other topics.
func (l *slotGiving) flows(ctx context.Context, tx transact.Transaction, q *topicQueue, free int) (flows []*flow, err error) {
	full := 0
	q.Several = true // then FreeFor may return less
	for topic := range q.Held {
		if q.FreeFor(topic) == 0 {
			full++
		}
	}
	q.Several = false
	var rows []turnRow
	// The limit has one topic more, because q.Several needs a second topic.
	if err := tx.Read(ctx, "topic_flows", &rows, q.subqueues, free+full+1); err != nil {
		return nil, err
	}
	slices.SortFunc(rows, func(a, b turnRow) int { return cmp.Or(cmp.Compare(a.Turn, b.Turn), cmp.Compare(a.Topic, b.Topic)) })
	for _, row := range rows {
		q.Several = q.Several || row.Topic != rows[0].Topic
	}
	first := slices.IndexFunc(rows, func(row turnRow) bool { return q.FreeFor(row.Topic) > 0 })
	if first < 0 {
		return nil, nil
	}
	open := 0 // number of topics that may have more slots
	for _, row := range rows {
		if open == free {
			break
		}
		if q.FreeFor(row.Topic) > 0 {
			open++
		}
		_, priority := holdfast.SplitSubqueue(row.Queue)
		flows = append(flows, &flow{
			Flow:  slots.Flow{Topic: row.Topic, Priority: priority, Weight: row.Weight, Turn: max(row.Turn, rows[first].Turn)},
			Queue: row.Queue,
		})
	}
	return flows, nil
}

// candidates reads the first waiting tasks of each flow.
func (l *slotGiving) candidates(ctx context.Context, tx transact.Transaction, q *topicQueue, flows []*flow, free int) error {
	type wanted struct {
		Flow  int    `json:"flow"`
		Queue string `json:"queue"`
		Topic string `json:"topic"`
	}
	lists := make(map[int][]wanted) // by the number of tasks to read
	for i, f := range flows {
		if f.most = q.Most(&f.Flow, free, len(flows)); f.most == 0 {
			continue
		}
		n := f.most + 1 // one task more shows whether more tasks wait
		lists[n] = append(lists[n], wanted{i, f.Queue, f.Topic})
	}
	for n, list := range lists {
		var rows []struct {
			Flow int
			ID   holdfast.TaskID
		}
		if err := tx.Read(ctx, "topic_candidates", &rows, transact.Encode(list), n); err != nil {
			return err
		}
		for _, row := range rows {
			flows[row.Flow].tasks = append(flows[row.Flow].tasks, row.ID)
		}
	}
	for _, f := range flows {
		slices.Sort(f.tasks)
		f.Waiting = min(len(f.tasks), f.most)
	}
	return nil
}

// admit starts the tasks that have got slots, and stores the next turns of the flows. It returns the number of started
// tasks. It skips tasks that no longer wait or that another transaction has locked.
func (l *slotGiving) admit(ctx context.Context, tx transact.Transaction, flows []*flow) (n int, err error) {
	type turn struct {
		Queue string   `json:"queue"`
		Topic string   `json:"topic"`
		Turn  *float64 `json:"turn"`
	}
	var chosen []holdfast.TaskID
	turns := make([]turn, len(flows))
	for i, f := range flows {
		turns[i] = turn{f.Queue, f.Topic, &f.Turn}
		if f.most > 0 && f.Given == len(f.tasks) { // no other task waits
			turns[i].Turn = nil
			l.past[part{f.Queue, f.Topic}] = f.Turn
		}
		chosen = append(chosen, f.tasks[:f.Given]...)
	}
	if _, err := tx.Change(ctx, "topic_turn", transact.Encode(turns)); err != nil || len(chosen) == 0 {
		return 0, err
	}
	var rows []startedRow
	if err := tx.Read(ctx, "topic_admit", &rows, chosen); err != nil {
		return 0, err
	}
	started := scan.Map(rows, func(row startedRow) holdfast.TaskID { return row.ID })
	if _, err := tx.Change(ctx, "topic_admitted", started); err != nil {
		return 0, err
	}
	if len(started) < len(chosen) {
		slices.Sort(started)
		others := slices.DeleteFunc(chosen, func(id holdfast.TaskID) bool { _, found := slices.BinarySearch(started, id); return found })
		if _, err := tx.Change(ctx, "topic_correct", others); err != nil {
			return 0, err
		}
	}
	return len(started), storeEntries(ctx, tx, rows)
}

// sweep corrects the rows of the next tasks, at most once in sweepEvery. The rows become wrong because people
// change tasks without their rows.
func (l *slotGiving) sweep(ctx context.Context, tx transact.Transaction) error {
	if time.Since(l.sweptAt) < sweepEvery {
		return nil
	}
	var last, stale []scan.ID
	if err := tx.Read(ctx, "topic_range", &last, l.swept, topicSweep); err != nil {
		return err
	}
	through := holdfast.TaskID(last[0].ID)
	if through > 0 {
		if err := tx.Read(ctx, "topic_stale", &stale, l.swept, through); err != nil {
			return err
		}
	}
	l.sweptAt, l.swept = time.Now(), through
	if len(stale) == 0 {
		return nil
	}
	_, err := tx.Change(ctx, "topic_correct", scan.IDs[holdfast.TaskID](stale))
	return err
}
