// Package queue stores tasks and runs their handlers. Most programs need only this package and the root package.
//
//	q, err := queue.Open(ctx) // settings from the environment; a file if nothing is set
//	defer q.Close()
//	queue.Handle(q, "welcome", func(ctx context.Context, task holdfast.Task, w Welcome) error { … })
//	q.Enqueue(ctx, "welcome", Welcome{"ada@example.com"}, queue.In(time.Hour), queue.Unique("ada"))
//	q.Run(ctx) // until ctx ends or the process receives SIGTERM
//
// # Guarantees
//
// If Enqueue returns no error, the task is committed. The task ends in state done, dead or cancelled, and a dead task
// waits for an operator. A handler runs at least once. It runs more than once only if a worker ended or lost its lease
// before the worker stored the result. The pair (task.ID, task.Attempt) is a fencing token, and task.IdempotencyKey is
// a key for other systems. The file docs/guarantees.md lists all guarantees and their limits.
//
// The package combines a producer, a worker and a janitor over one store and one broker. It opens no port, has no task
// type of its own and links no metrics. Package app/daemon adds those for the command holdfast serve. A program that
// wants the type http registers the handler of package consumer/webhook. An [Observer] receives the events that metrics
// need.
//
// # Settings
//
// [Open] reads the same settings as the command holdfast serve. The sources are, in this order: defaults, the YAML file
// that HOLDFAST_CONFIG names, environment variables, options. A later source overrides an earlier one. With
// DATABASE_URL and AMQP_URL any number of processes share the tasks in PostgreSQL and RabbitMQ. If neither is set, the
// tasks are in the file of holdfast serve, holdfast/holdfast.db in the user's data folder. Any process of the machine
// may store tasks in the file. Only one process at a time runs them.
//
// A task type has the settings of its type in the configuration. The options of [Handle] override single settings of
// the type. They apply to the attempts that this process runs. If a janitor in another process handles a crash, it uses
// the settings of its own process. Settings that a person changes in the store, with holdfast setting set, apply to all
// processes within two seconds. A setting of a type there replaces an option of Handle.
//
// If Enqueue got the option [MaxAttempts], that is the limit of attempts. Otherwise the limit comes from the settings
// of the worker that runs the attempt.
//
// # Schedules
//
// A schedule stores a task at regular times. A program declares its schedules at each start:
//
//	q.Schedule(ctx, queue.Cron("nightly", "0 30 2 * * *", "report", Report{}, queue.Timezone("Europe/Berlin")))
//	q.Schedule(ctx, queue.Every("sync", 5*time.Minute, "sync", Sync{}))
//
// The store has the schedule, and all janitors together store exactly one task for each moment that runs. [Missed],
// [CatchUp] and [Overlap] decide which moments run after an outage and while earlier tasks are open. [Client.Schedule]
// changes the stored schedule only if the declaration has changed. So people can edit and pause schedules while programs
// restart. [Client.ScheduleAll] also finds the schedules that a program no longer declares. A handler gets the moment of
// its task from [ScheduledFor].
//
// # Sources
//
// A source is a system that is pulled in slices of time. A program handles the slices and declares the source:
//
//	queue.HandleSlices(q, "orders.pull", func(ctx context.Context, task holdfast.Task, s queue.Slice) error {
//		return shop(s.Source).Pull(ctx, s.From, s.To) // From already includes the overlap
//	})
//	q.SetSource(ctx, queue.Source{Name: "shop-17", Type: "orders.pull", Every: 5 * time.Minute, Overlap: 5 * time.Second,
//		Start: queue.Ago(90 * 24 * time.Hour), InFlight: 4})
//
// The store has the source, and all janitors together store exactly one task for each slice, without a gap, whatever
// crashes. After an outage they store the slices that are left, as many at a time as InFlight and Rate allow. A slice
// that fails is retried like any task, and a dead one does not stop the source. [Client.SetSource] changes the stored
// source only if the declaration has changed. The source "default" has the settings that others do not have; a change
// of it applies to the slices that are not stored yet. [Client.BackfillSource] pulls a part again.
//
// # Shard jobs
//
// A shard job runs over data that zones own by shard. Each zone is a queue with workers of its own. A program handles
// the passes of a zone and declares the job:
//
//	queue.HandleShards(q, "scan-orders", func(ctx context.Context, pass *queue.Pass) error {
//		orders, last, err := ordersAfter(ctx, pass.Offset(), 500)
//		if err == nil {
//			err = scan(ctx, orders, pass.Owns) // leaves out the orders of other zones
//		}
//		if err != nil {
//			return err
//		}
//		return pass.Save(ctx, last)
//	})
//	zones := map[string]string{"0": "berlin", "1": "oslo", "2": "berlin"}
//	q.SetShardJob(ctx, queue.ShardJob{Name: "scan", Type: "scan-orders", Zones: zones})
//
// The store has the shard map and an offset for each shard. A pass sees one shard map: if the map changes, the context
// of the pass ends with [ErrMapChanged], and Save refuses its offsets. The next pass of a zone begins at the lowest
// offset of the shards that the zone then has. So no item is left out when a shard moves, and some items run again.
// [Client.MoveShard] and [Client.DrainZone] move shards.
//
// # Effects
//
// An attempt can store more than its result:
//
//	queue.Handle(q, "order", func(ctx context.Context, task holdfast.Task, o Order) error {
//		charge, err := queue.Once(ctx, "charge", func() (Charge, error) { return pay(ctx, o, task.IdempotencyKey()) })
//		if err != nil {
//			return err
//		}
//		if err := queue.Next(ctx, "ship", o); err != nil {
//			return err
//		}
//		return queue.Output(ctx, charge)
//	})
//
// The values of [Once] and [Save] are committed when the call returns, and later attempts get them. So a step that has
// succeeded does not run again. The store keeps the tasks of [Next] and the value of [Output] together with the
// success, or not at all. [CompleteTx] commits the success together with rows of the program. [Progress] is for people.
// The store refuses values of an attempt that has lost its lease. The file docs/effects.md describes the crash windows
// and limits.
//
// # Batches
//
// A batch is many tasks, its subtasks, that end together. A program handles the batches of a type with three functions:
//
//	queue.HandleBatch(q, "reindex", queue.Batch[Category, Product, Indexed]{
//		Split: func(ctx context.Context, in Category, to *queue.Split[Product]) error {
//			for p, err := range products.After(ctx, in, to.Cursor()) { // "" at first
//				if err != nil {
//					return err
//				}
//				if err := to.Add(ctx, p, p.SKU); err != nil {
//					return err
//				}
//			}
//			return nil
//		},
//		Map: func(ctx context.Context, task holdfast.Task, p Product) (Indexed, error) { … },
//		Reduce: func(ctx context.Context, items *queue.Results[Product, Indexed]) (any, error) {
//			for item, err := range items.All(ctx) { … } // item.Payload, item.Output
//		},
//	})
//	id, err := q.StartBatch(ctx, "reindex", Category{7}, queue.AllowFailed("1%"), queue.BatchName("reindex-7"))
//
// Split and Reduce run in tasks of their own, which are retried like all tasks. The store commits the subtasks in pages
// of up to 1,000, each with the cursor of its last item. So a split that crashes continues after the last page, and no
// subtask is stored twice. While a batch has as many open subtasks as its [Window], its split waits, and holds no
// executor for longer than two seconds. When all subtasks have ended and no more than [AllowFailed] have failed, Reduce
// reads their outputs. Otherwise the batch is stopped. It goes on by itself if a person retries the dead subtasks and
// they succeed.
//
// A program can also add the subtasks itself, while they run, and seal the batch at the end:
//
//	b, err := q.OpenBatch(ctx, queue.Then("gallery.ready", Gallery{42}))
//	err = b.Add(ctx, "resize", images...)
//	err = b.Seal(ctx)
//
// A chain is a batch with given stages. The tasks of a stage run at the same time, and the next stage begins when they
// have ended. A handler gets the outputs of the stage before from [Previous]:
//
//	q.StartChain(ctx, []queue.Stage{
//		{{Type: "fetch", Payload: Order{7}}},
//		{{Type: "invoice"}, {Type: "label"}},
//		{{Type: "ship"}},
//	})
//
// [Client.Batch] and [Client.WaitBatch] return how far a batch is, [ResultsOf] its subtasks with their outputs, and
// [ReducedOf] the value of Reduce.
//
// # Traces
//
// With the option [Tracer], OpenTelemetry follows a task from Enqueue through every attempt, and the context of a handler
// has the span of its attempt. Package tracing makes a Tracer from a TracerProvider. The file docs/tracing.md describes
// the spans.
//
// # Errors
//
// Errors wrap the sentinels of package holdfast: ErrInvalid, ErrNotFound, ErrConflict, ErrUnavailable. After Close,
// calls return [ErrClosed].
//
// # Concurrency
//
// A [Client] is safe for concurrent use. Call Handle before Run. Handlers, middleware and policy functions are called
// from many goroutines at the same time.
package queue
