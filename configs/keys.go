package configs

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/holdfastq/holdfast"
)

// setting is a key, its documentation and its field.
type setting struct {
	key    string
	doc    string
	value  value
	secret bool
	empty  bool // an empty variable sets an empty value
}

const (
	typesPrefix   = "types."
	secretsPrefix = "webhook.secrets."
	hostsPrefix   = "webhook.secret_hosts."
)

// The number of faults in succession that trip a breaker: its maximum, and the key of type http alone.
const (
	maxBreakerFaults     = 1000
	webhookBreakerFaults = "webhook.breaker_faults"
)

// settings returns every key of c in the order of the example file. The values point to the fields of c. All other
// tables of keys are derived from this one.
func (c *Config) settings() []setting {
	all := slices.Concat(c.serverSettings(), c.workSettings(), c.apiSettings(), c.notifySettings(), c.webhookSettings(), taskSettings("defaults.", &c.Defaults))
	for _, name := range slices.Sorted(maps.Keys(c.Types)) {
		t := c.typeSettings(name)
		all = append(all, taskSettings(typesPrefix+name+".", &t)...)
	}
	return all
}

func (c *Config) serverSettings() []setting {
	return []setting{
		{key: "database.url", doc: "Database of the tasks: postgres://user:password@host:5432/name, or sqlite:/path/to/file.db for a file that one process serves; sqlite: alone means holdfast/holdfast.db in the data folder of the user. For TLS add ?sslmode=verify-full, and sslrootcert, sslcert and sslkey for your own files.",
			value: one[string]{&c.Database.URL, optional(databaseURL)}, secret: true},
		{key: "database.direct_url", doc: "URL of the same database without a connection pooler, for renewals, locks and presence; \"\" means database.url. Presence needs it if database.url is a pooler in transaction mode.",
			value: one[string]{&c.Database.DirectURL, optional(directURL)}, secret: true},
		{key: "database.schema", doc: "PostgreSQL schema of the tables, a lower-case SQL identifier.",
			value: one[string]{&c.Database.Schema, plain(identifier)}},
		{key: "database.max_conns", doc: "Maximum number of connections to PostgreSQL per process, 1 to 10000.",
			value: one[int]{&c.Database.MaxConns, number(1, 10_000)}},

		{key: "amqp.urls", doc: "URLs of RabbitMQ: amqp://user:password@host:5672/vhost, or amqps://; several are tried in turn. With sqlite: it is inproc:, the broker inside of the serving process. For your own CA or client certificate add ?cacertfile=, certfile= and keyfile=.",
			value: many[string]{&c.AMQP.URLs, optional(amqpURL)}, secret: true},
		{key: "amqp.prefix", doc: "Prefix of the names of all AMQP queues and exchanges.",
			value: one[string]{&c.AMQP.Prefix, plain(queuePrefix)}},

		{key: "log.level", doc: "Minimum level of log lines: trace, debug, info, warn or error.",
			value: one[string]{&c.Log.Level, plain(oneOf("trace", "debug", "info", "warn", "error"))}},
		{key: "log.format", doc: "Format of log lines: text for people, json for programs.",
			value: one[string]{&c.Log.Format, plain(oneOf("text", "json"))}},

		{key: "listen", doc: "Address of the health and metrics endpoints and of the HTTP API, host:port; \"\" means none.",
			value: one[string]{&c.Listen, optional(listenAddress)}, empty: true},
		{key: "roles", doc: "Roles of holdfast serve: worker, janitor, api, which serves the HTTP API, and console, which serves the web console.",
			value: many[string]{&c.Roles, plain(oneOf(RoleWorker, RoleJanitor, RoleAPI, RoleConsole))}},
	}
}

func (c *Config) workSettings() []setting {
	const tick = time.Millisecond
	w, p, j := &c.Worker, &c.Producer, &c.Janitor
	return []setting{
		{key: "worker.concurrency", doc: "Maximum number of tasks that one process runs at the same time, 1 to 100000.",
			value: one[int]{&w.Concurrency, number(1, 100_000)}},
		{key: "worker.queues", doc: "Queues from which the worker takes tasks; [] means every queue.",
			value: many[string]{&w.Queues, plain(queue)}},
		{key: "worker.drain_timeout", doc: "Time that running tasks have to finish after a shutdown was requested. Then the worker hands them back. At least 1ms.",
			value: one[time.Duration]{&w.DrainTimeout, duration(tick)}},
		{key: "worker.lease", doc: "How long a worker keeps its tasks without renewing its lease, 1s to 1h. If nothing shows earlier that the process is gone, recovery takes slightly longer than this.",
			value: one[time.Duration]{&w.Lease, span(time.Second, time.Hour)}},
		{key: "worker.presence", doc: "Whether a worker acquires presence locks in PostgreSQL and RabbitMQ. With them, its tasks start again within half a second after a crash; without them, after the end of its lease. Each lock needs one more connection.",
			value: one[bool]{&w.Presence, yesNo()}},
		{key: "worker.name", doc: "Name of the worker in lists; \"\" means host/pid.",
			value: one[string]{&w.Name, plain(workerName)}},

		{key: "producer.max_payload", doc: "Maximum size of a payload in bytes, 1 to 67108864.",
			value: one[int]{&p.MaxPayload, number(1, 64<<20)}},

		{key: "janitor.keep_done", doc: "How long done tasks are kept; 0s means forever. A unique key with a time of its own is kept for that time.",
			value: one[time.Duration]{&j.KeepDone, duration(0)}},
		{key: "janitor.keep_cancelled", doc: "How long cancelled tasks are kept; 0s means forever.",
			value: one[time.Duration]{&j.KeepCancelled, duration(0)}},
		{key: "janitor.keep_archived", doc: "How long archived tasks are kept; 0s means forever. Dead tasks are always kept.",
			value: one[time.Duration]{&j.KeepArchived, duration(0)}},
		{key: "janitor.keep_workers", doc: "How long ended workers are kept in the list of workers; 0s means forever.",
			value: one[time.Duration]{&j.KeepWorkers, duration(0)}},
	}
}

func (c *Config) apiSettings() []setting {
	a := &c.API
	return []setting{
		{key: "api.trusted_proxies", doc: "Networks of the proxies that authenticate users of the HTTP API: [10.1.0.0/16]. Requests from elsewhere need a token.",
			value: many[prefix]{&a.TrustedProxies, network()}},
		{key: "api.user_header", doc: "Header in which a trusted proxy sends the name of the user, such as X-Forwarded-User; \"\" means none. The proxy must remove this header from the requests of its clients.",
			value: one[string]{&a.UserHeader, optional(headerName)}},
		{key: "api.role_header", doc: "Header in which a trusted proxy sends the role of the user: viewer, operator or admin. The proxy must remove it from the requests of its clients, too.",
			value: one[string]{&a.RoleHeader, optional(headerName)}},
		{key: "api.default_role", doc: "Role of a user for whom the proxy sends none: viewer, operator or admin; \"\" refuses such a user.",
			value: one[string]{&a.DefaultRole, optional(oneOf("viewer", "operator", "admin"))}},
		{key: "console.prefix", doc: "Path below which the web console is served, such as /holdfast, if a proxy forwards only that path; \"\" means none.",
			value: one[string]{&c.Console.Prefix, optional(pathPrefix)}},
	}
}

func (c *Config) notifySettings() []setting {
	n := &c.Notify
	return []setting{
		{key: "notify.url", doc: "URL that a janitor calls, by tasks of type http, when a group of dead tasks appears or returns, an operation stops by itself, or a queue is late; \"\" means none.",
			value: one[string]{&n.URL, optional(notifyURL)}, secret: true},
		{key: "notify.secret", doc: "Name of the secret in webhook.secrets that signs the calls; \"\" means that they are not signed.",
			value: one[string]{&n.Secret, optional(checkSecretName)}},
		{key: "notify.queue", doc: "Queue of the tasks that make the calls. Events of this queue are not announced, so no other tasks should be in it.",
			value: one[string]{&n.Queue, plain(queue)}},
		{key: "notify.kinds", doc: "Events to announce: group_appeared, group_returned, operation_stopped, queue_late.",
			value: many[string]{&n.Kinds, plain(oneOf(NotifyKinds...))}},
		{key: "notify.min_tasks", doc: "How many tasks of a group must be dead, or have died since the group was resolved, before it is announced, 1 to 10000.",
			value: one[int]{&n.MinTasks, number(1, 10_000)}},
		{key: "notify.oldest_task", doc: "Age of its oldest due task from which on a queue is late; 0 means never. A queue is announced again only after that age has fallen to half of this.",
			value: one[time.Duration]{&n.OldestTask, duration(0)}},
	}
}

func (c *Config) webhookSettings() []setting {
	w := &c.Webhook
	all := []setting{
		{key: "webhook.allow_cidrs", doc: "Networks to which requests are allowed although they are private, loopback or otherwise special: [10.1.0.0/16, \"fd00::/8\"].",
			value: many[prefix]{&w.AllowCIDRs, network()}},
		{key: "webhook.timeout", doc: "Time limit of one request. A payload may set a lower one.",
			value: one[time.Duration]{&w.Timeout, duration(time.Millisecond)}},
		{key: "webhook.max_retry_after", doc: "Longest wait that a target may request with Retry-After, at least 1s.",
			value: one[time.Duration]{&w.MaxRetryAfter, duration(time.Second)}},
		{key: "webhook.max_response", doc: "Maximum number of bytes of the body of a failed response that are stored with the attempt, 1 to 65536.",
			value: one[int]{&w.MaxResponse, number(1, 64<<10)}},
		{key: "webhook.retry_statuses", doc: "Statuses of responses after which the task is retried. Any other status except 2xx makes the task dead at once.",
			value: many[string]{&w.RetryStatuses, plain(status)}},
		{key: webhookBreakerFaults, doc: "The number of faults in succession that accuse the target, such as no answer or 502, after which its breaker trips; then only probes start until the target answers. 0: breakers never trip, also not after 429 or 503. If it is set, types.http.breaker.faults inherits it, and not defaults.breaker.faults; with 0, types.http.breaker.rate inherits 0%, too.",
			value: one[int]{&w.BreakerFaults, number(0, maxBreakerFaults)}},
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
		doc: "Hosts to which requests may be signed with the secret: api.example.com on any port, api.example.com:8443, or *.example.com for all names that end in .example.com."}
}

func secretSetting(name string, v value) setting {
	return setting{key: secretsPrefix + name, secret: true, value: v,
		doc: "Signing keys that a payload may select with secret_ref: whsec_ and the base64 of 24 to 64 bytes. With several keys, requests are signed with each."}
}

func taskSettings(prefix string, t *holdfast.TypeSettings) []setting {
	p, b := &t.Policy, &t.Breaker
	return []setting{
		{key: prefix + "retry.strategy", doc: "How the delay grows: exponential, linear, fixed or list.",
			value: one[holdfast.Strategy]{&p.Strategy,
				plain(oneOf(holdfast.Exponential, holdfast.Linear, holdfast.Fixed, holdfast.List))}},
		{key: prefix + "retry.base", doc: "First delay; 0s means at once and is allowed only with fixed.",
			value: one[time.Duration]{&p.Base, duration(0)}},
		{key: prefix + "retry.factor", doc: "With exponential, the factor from one delay to the next, 1 to 1000.",
			value: one[float64]{&p.Factor, decimal(1, 1000)}},
		{key: prefix + "retry.max", doc: "Longest delay; 0s means no limit.",
			value: one[time.Duration]{&p.Max, duration(0)}},
		{key: prefix + "retry.jitter", doc: "Random part of the delay, 0 to 1: 0.1 means up to 10% less or more.",
			value: one[float64]{&p.Jitter, decimal(0, 1)}},
		{key: prefix + "retry.delays", doc: "With list, the delays in order; the last one is repeated.",
			value: many[time.Duration]{&p.Delays, duration(0)}},
		{key: prefix + "retry.deadline", doc: "Time after the creation of a task after which no attempt begins; 0s means no limit.",
			value: one[time.Duration]{&p.Deadline, duration(0)}},
		{key: prefix + "max_attempts", doc: "Number of failures after which a task is dead, unless the task has its own.",
			value: one[int]{&p.MaxAttempts, number(1, math.MaxInt32)}},
		{key: prefix + "max_crashes", doc: "Number of crashes after which a task is dead.",
			value: one[int]{&p.MaxCrashes, number(1, math.MaxInt32)}},
		{key: prefix + "max_deferrals", doc: "Number of times that a handler may defer a task.",
			value: one[int]{&p.MaxDeferrals, number(0, math.MaxInt32)}},
		{key: prefix + "at_most_once", doc: "Whether no second attempt of a task starts before a person retries the task. Then a task whose attempt has started and does not succeed is dead. A worker with such a type claims no tasks ahead of its executors.",
			value: one[bool]{&p.AtMostOnce, yesNo()}},
		{key: prefix + "after_death", doc: "What the death of an ordered task does to the later tasks of its key: block, skip or dead. block makes them wait for a person; skip starts the next one; dead makes them dead too, without an attempt.",
			value: one[holdfast.AfterDeath]{&p.AfterDeath,
				plain(oneOf(holdfast.AfterDeathBlock, holdfast.AfterDeathSkip, holdfast.AfterDeathDead))}},
		{key: prefix + "keep_attempts", doc: "Attempts that are recorded: none, retried or all. none records only the attempt after which a task is dead; retried each attempt that did not succeed, and the success that follows; all also a success at the first attempt.",
			value: one[holdfast.Keep]{&p.KeepAttempts,
				plain(oneOf(holdfast.KeepNone, holdfast.KeepRetried, holdfast.KeepAll))}},
		{key: prefix + "timeout", doc: "Time limit of one attempt; 0s means none.",
			value: one[time.Duration]{&t.Timeout, duration(0)}},
		{key: prefix + "abandon_after", doc: "How long a handler may ignore that its attempt timed out or was cancelled. Then the worker gives the attempt up and runs other tasks in its place; 0s means never.",
			value: one[time.Duration]{&t.AbandonAfter, duration(0)}},
		{key: prefix + breakerFaults, doc: "Number of faults in succession that accuse the target, such as no answer or 502, at one process after which its breaker trips, up to 1000; 0 switches this rule off. Only tasks of type http have targets. If breaker.rate is 0% too, breakers never trip, also not after 429 or 503.",
			value: one[int]{&b.Faults, number(0, maxBreakerFaults)}},
		{key: prefix + breakerRate, doc: "Share of faults, 500 among them, in the attempts of a target at one process within breaker.window, at which its breaker trips, up to 100%. An answer 500 counts once for each task. 0% switches this rule off.",
			value: one[int]{&b.Rate, percent()}},
		{key: prefix + "breaker.attempts", doc: "Minimum number of attempts in the window from which on breaker.rate applies, 1 to 100000.",
			value: one[int]{&b.Attempts, number(1, 100_000)}},
		{key: prefix + "breaker.window", doc: "Time over which a process counts the attempts and faults of a target, 1s to 10m. It starts with the first fault.",
			value: one[time.Duration]{&b.Window, span(holdfast.MinBreakerWindow, holdfast.MaxBreakerWindow)}},
		{key: prefix + "queue", doc: "Queue of tasks that are enqueued without one.",
			value: one[string]{&t.Queue, plain(queue)}},
	}
}
