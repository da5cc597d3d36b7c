package configs

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
)

// setting is one key: what it means and the field behind it.
type setting struct {
	key    string
	doc    string
	value  value
	secret bool
	empty  bool // an empty variable is a value; those of the others count as not set
}

const (
	typesPrefix   = "types."
	secretsPrefix = "webhook.secrets."
	hostsPrefix   = "webhook.secret_hosts."
)

// settings lists every key of c, in the order people read them; the fields behind
// them are c's own. It is the one table everything else here is made from.
func (c *Config) settings() []setting {
	all := slices.Concat(c.serverSettings(), c.workSettings(), c.webhookSettings(), taskSettings("defaults.", &c.Defaults))
	for _, name := range slices.Sorted(maps.Keys(c.Types)) {
		t := c.Types[name]
		all = append(all, taskSettings(typesPrefix+name+".", &t)...)
	}
	return all
}

func (c *Config) serverSettings() []setting {
	return []setting{
		{key: "database.url", doc: "Where the tasks are: postgres://user:password@host:5432/name, or sqlite:/path/to/file.db, a file that one process serves; sqlite: alone is holdfast/holdfast.db in the user's data folder. For TLS: ?sslmode=verify-full, with sslrootcert, sslcert and sslkey for files of your own.",
			value: one[string]{&c.Database.URL, plain(databaseURL)}, secret: true},
		{key: "database.direct_url", doc: "The same database past a connection pooler, for renewals, locks and presence; \"\" means database.url. Behind a pooler in transaction mode presence is off without it.",
			value: one[string]{&c.Database.DirectURL, plain(directURL)}, secret: true},
		{key: "database.schema", doc: "PostgreSQL schema the tables live in: a lower-case SQL identifier.",
			value: one[string]{&c.Database.Schema, plain(identifier)}},
		{key: "database.max_conns", doc: "Connections to PostgreSQL one process may open, 1 to 10000.",
			value: one[int]{&c.Database.MaxConns, number(1, 10_000)}},

		{key: "amqp.urls", doc: "RabbitMQ: amqp://user:password@host:5672/vhost, or amqps://; several are tried in turn. With sqlite: it is inproc:, the broker inside the serving process. For a CA or a client certificate of your own: ?cacertfile=, certfile= and keyfile=.",
			value: many[string]{&c.AMQP.URLs, plain(amqpURL)}, secret: true},
		{key: "amqp.prefix", doc: "First part of every queue's and exchange's name.",
			value: one[string]{&c.AMQP.Prefix, plain(queuePrefix)}},
		{key: "amqp.shards", doc: "Holding queues, 1 to 64. The same in every process.",
			value: one[int]{&c.AMQP.Shards, number(1, 64)}},

		{key: "log.level", doc: "trace, debug, info, warn or error.",
			value: one[string]{&c.Log.Level, plain(oneOf("trace", "debug", "info", "warn", "error"))}},
		{key: "log.format", doc: "text for people, json for machines.",
			value: one[string]{&c.Log.Format, plain(oneOf("text", "json"))}},

		{key: "listen", doc: "Address of the health and metrics endpoints, host:port; \"\" means none.",
			value: one[string]{&c.Listen, plain(listenAddress)}, empty: true},
		{key: "roles", doc: "What serve runs: worker, janitor.",
			value: many[string]{&c.Roles, plain(oneOf(RoleWorker, RoleJanitor))}},
	}
}

func (c *Config) workSettings() []setting {
	const tick = time.Millisecond
	w, p, j := &c.Worker, &c.Producer, &c.Janitor
	return []setting{
		{key: "worker.concurrency", doc: "Tasks one process runs at the same time, 1 to 100000.",
			value: one[int]{&w.Concurrency, number(1, 100_000)}},
		{key: "worker.lanes", doc: "Lanes to take tasks from; [] means every lane.",
			value: many[string]{&w.Lanes, plain(lane)}},
		{key: "worker.drain_timeout", doc: "How long running tasks may go on after a shutdown was asked for; then they are handed back. At least 1ms.",
			value: one[time.Duration]{&w.DrainTimeout, duration(tick)}},
		{key: "worker.lease", doc: "How long a process that gives no sign of life keeps its tasks, 1s to 1h. Where nothing tells sooner that it is gone, recovery takes a little longer than this.",
			value: one[time.Duration]{&w.Lease, span(time.Second, time.Hour)}},
		{key: "worker.presence", doc: "Whether a worker shows in PostgreSQL and RabbitMQ that its process is there, so that its tasks start again within half a second after a crash; with false they wait for the end of its lease. One more connection to each of the two.",
			value: one[bool]{&w.Presence, yesNo()}},
		{key: "worker.park_for", doc: "How long a task whose type no worker here handles is parked the first time; each further time twice as long, up to ten minutes. At least 1ms.",
			value: one[time.Duration]{&w.ParkFor, duration(tick)}},
		{key: "worker.name", doc: "Name in lists of workers; \"\" means host/pid.",
			value: one[string]{&w.Name, plain(workerName)}},

		{key: "producer.max_payload", doc: "Largest payload that is accepted, in bytes, 1 to 67108864.",
			value: one[int]{&p.MaxPayload, number(1, 64<<20)}},
		{key: "producer.confirm_timeout", doc: "How long to wait for the broker's confirm. Later ones lose nothing: a janitor publishes again.",
			value: one[time.Duration]{&p.ConfirmTimeout, duration(tick)}},

		{key: "janitor.fence_grace", doc: "Added to a lease before its owner is declared gone.",
			value: one[time.Duration]{&j.FenceGrace, duration(tick)}},
		{key: "janitor.patrol_after", doc: "Age at which the database is asked about tasks that are still held, although their worker lives. At most 10m: RabbitMQ closes the channel of whoever holds a message for 30.",
			value: one[time.Duration]{&j.PatrolAfter, span(tick, 10*time.Minute)}},
		{key: "janitor.sentinel_interval", doc: "How often a marker is sent down each lane to find lost tickets.",
			value: one[time.Duration]{&j.SentinelInterval, duration(tick)}},
		{key: "janitor.sentinel_slack", doc: "How long after a marker has come out of its lane a second one must be sent for both to prove older tickets lost.",
			value: one[time.Duration]{&j.SentinelSlack, duration(tick)}},
		{key: "janitor.rebuild_every", doc: "How often the queues are looked for in RabbitMQ, and made anew if they are missing.",
			value: one[time.Duration]{&j.RebuildEvery, duration(tick)}},
		{key: "janitor.outbox_grace", doc: "How long a stored task is left to its producer to publish.",
			value: one[time.Duration]{&j.OutboxGrace, duration(tick)}},
		{key: "janitor.keep_done", doc: "How long finished tasks are kept; 0s means for ever.",
			value: one[time.Duration]{&j.KeepDone, duration(0)}},
		{key: "janitor.keep_cancelled", doc: "How long cancelled tasks are kept; 0s means for ever.",
			value: one[time.Duration]{&j.KeepCancelled, duration(0)}},
		{key: "janitor.keep_archived", doc: "How long archived tasks are kept; 0s means for ever. Dead tasks always stay.",
			value: one[time.Duration]{&j.KeepArchived, duration(0)}},
		{key: "janitor.keep_runs", doc: "How long the records of ended processes are kept; 0s means for ever.",
			value: one[time.Duration]{&j.KeepRuns, duration(0)}},
	}
}

func (c *Config) webhookSettings() []setting {
	w := &c.Webhook
	all := []setting{
		{key: "webhook.allow_cidrs", doc: "Networks that may be called although they are private, loopback or otherwise special: [10.1.0.0/16, \"fd00::/8\"].",
			value: many[prefix]{&w.AllowCIDRs, network()}},
		{key: "webhook.timeout", doc: "For one request, unless its payload asks for less.",
			value: one[time.Duration]{&w.Timeout, duration(time.Millisecond)}},
		{key: "webhook.max_retry_after", doc: "Longest wait a target may ask for with Retry-After, at least 1s.",
			value: one[time.Duration]{&w.MaxRetryAfter, duration(time.Second)}},
		{key: "webhook.max_response", doc: "Bytes of a failed response's body that are kept with the attempt, 1 to 65536.",
			value: one[int]{&w.MaxResponse, number(1, 64<<10)}},
		{key: "webhook.retry_statuses", doc: "Responses worth another attempt. Every other one that is not 2xx makes the task dead at once.",
			value: many[string]{&w.RetryStatuses, plain(status)}},
	}
	for _, name := range slices.Sorted(maps.Keys(w.Secrets)) {
		all = append(all, secretSetting(name, &secretKeys{w.Secrets, name}))
	}
	for _, name := range slices.Sorted(maps.Keys(w.SecretHosts)) {
		hosts := w.SecretHosts[name]
		all = append(all, hostsSetting(name, &hosts))
	}
	return all
}

func hostsSetting(name string, at *[]string) setting {
	return setting{key: hostsPrefix + name, value: many[string]{at, plain(secretHost)},
		doc: "Hosts that the secret may sign requests to: api.example.com on any port, api.example.com:8443, or *.example.com for all names that end in .example.com."}
}

func secretSetting(name string, v value) setting {
	return setting{key: secretsPrefix + name, secret: true, value: v,
		doc: "Signing keys a payload may name as its secret_ref: whsec_ and base64 of 24 to 64 bytes. Several sign side by side."}
}

func taskSettings(prefix string, t *holdfast.TypeSettings) []setting {
	p := &t.Policy
	return []setting{
		{key: prefix + "retry.strategy", doc: "How the delay grows: exponential, linear, fixed or list.",
			value: one[holdfast.Strategy]{&p.Strategy, strategy()}},
		{key: prefix + "retry.base", doc: "First delay; 0s, with fixed only, means at once.",
			value: one[time.Duration]{&p.Base, duration(0)}},
		{key: prefix + "retry.factor", doc: "With exponential, what each delay is multiplied by; at least 1.",
			value: one[float64]{&p.Factor, decimal(1, 1000)}},
		{key: prefix + "retry.max", doc: "Longest delay; 0s means no limit.",
			value: one[time.Duration]{&p.Max, duration(0)}},
		{key: prefix + "retry.jitter", doc: "Part of the delay that is random, 0 to 1: 0.1 is up to 10% less or more.",
			value: one[float64]{&p.Jitter, decimal(0, 1)}},
		{key: prefix + "retry.delays", doc: "With list, the delays in order; the last one repeats.",
			value: many[time.Duration]{&p.Delays, duration(0)}},
		{key: prefix + "retry.deadline", doc: "No attempt begins later than this after the task was created; 0s means no limit.",
			value: one[time.Duration]{&p.Deadline, duration(0)}},
		{key: prefix + "max_attempts", doc: "Failures after which a task is dead, unless it has a number of its own.",
			value: one[int]{&p.MaxAttempts, number(1, math.MaxInt32)}},
		{key: prefix + "max_crashes", doc: "Attempts that may end with their worker before the task is dead.",
			value: one[int]{&p.MaxCrashes, number(1, math.MaxInt32)}},
		{key: prefix + "max_deferrals", doc: "How often a task may ask to come back later without a failure.",
			value: one[int]{&p.MaxDeferrals, number(0, math.MaxInt32)}},
		{key: prefix + "timeout", doc: "For one attempt; 0s means none.",
			value: one[time.Duration]{&t.Timeout, duration(0)}},
		{key: prefix + "lane", doc: "Lane of tasks that name none.",
			value: one[string]{&t.Lane, plain(lane)}},
	}
}
