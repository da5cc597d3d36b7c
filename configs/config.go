// Package configs loads and checks the configuration of the holdfast daemon and command line.
//
// [Load] merges four layers: defaults, a YAML file, the environment, and flags. A later layer overrides an earlier one.
// Each key has one environment variable: worker.drain_timeout is HOLDFAST_WORKER_DRAIN_TIMEOUT. If the variables of
// database.url and amqp.urls are not set, DATABASE_URL and AMQP_URL are read instead. For a secret, the variable with
// the suffix _FILE names a file that contains it. An empty variable is treated as not set, except the one of listen. A
// key without a value in the file keeps its default.
//
// An unknown key, HOLDFAST_ variable or flag is an error that suggests the closest known one. [Load] reports all
// problems, not only the first.
//
// Task settings have two levels, defaults and types.<name>. A type inherits every key that it does not set. A store may
// have the same keys; [Config.WithStored] merges them.
//
// Secrets, and passwords in URLs, never appear in [Entry] values or in errors.
package configs

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
)

// Config is the complete configuration; see Load and Default. The zero value is not valid. Variables and
// holdfast.example.yaml document its fields, with units and ranges.
type Config struct {
	Database Database
	AMQP     AMQP
	Log      Log
	Listen   string   // address of the health and metrics endpoints and of the HTTP API; empty means none
	Roles    []string // the roles of serve: RoleWorker, RoleJanitor, RoleAPI, RoleConsole
	Worker   Worker
	Producer Producer
	Janitor  Janitor
	API      API
	Console  Console
	Webhook  Webhook
	Notify   Notify
	Defaults holdfast.TypeSettings
	Types    map[string]holdfast.TypeSettings // complete, including inherited values

	origins map[string]string
}

// The roles of a daemon.
const (
	RoleWorker  = "worker"
	RoleJanitor = "janitor"
	RoleAPI     = "api"
	RoleConsole = "console"
)

// The embedded servers, which are the default: a file in the data folder of the user, and a broker inside the process.
const (
	EmbeddedDatabase = "sqlite:"
	EmbeddedBroker   = "inproc:"
)

// Database is the database with the tasks.
type Database struct {
	URL       string // postgres://…, or sqlite: and the path of a file
	DirectURL string // connection to the same PostgreSQL without a pooler; empty means URL
	Schema    string // schema of PostgreSQL
	MaxConns  int    // maximum number of connections to PostgreSQL
}

// AMQP is the broker and the names of its queues and exchanges.
type AMQP struct {
	URLs   []string // amqp://… or amqps://…, one per node of a cluster; or inproc: alone
	Prefix string
}

// Log is the format of the log, which is written to stderr.
type Log struct {
	Level  string
	Format string // text or json
}

// Worker has the settings of the worker.
type Worker struct {
	Concurrency  int
	Queues       []string // empty means every queue
	DrainTimeout time.Duration
	Lease        time.Duration
	Presence     bool   // acquire presence locks
	Name         string // empty means host/pid
}

// Producer has the settings of the producer.
type Producer struct {
	MaxPayload int // bytes
}

// Janitor has the settings of the janitor. KeepDone, KeepCancelled, KeepArchived and KeepWorkers are retention times; 0
// means forever.
type Janitor struct {
	KeepDone      time.Duration
	KeepCancelled time.Duration
	KeepArchived  time.Duration
	KeepWorkers   time.Duration
}

// API has the settings of the HTTP API for users that a proxy has authenticated.
type API struct {
	TrustedProxies []netip.Prefix // only requests from these networks may name a user
	UserHeader     string         // empty means that no request may name a user
	RoleHeader     string
	DefaultRole    string // role of a user without a role in the header; "" refuses such a user
}

// Console has the settings of the web console.
type Console struct {
	Prefix string // the path below which it is served, such as /holdfast; "" means none
}

// Webhook has the settings of the task type http.
type Webhook struct {
	AllowCIDRs    []netip.Prefix
	Timeout       time.Duration
	MaxRetryAfter time.Duration
	MaxResponse   int      // stored bytes of a response body
	RetryStatuses []string // "429" or "5xx"
	BreakerFaults int      // the default of breaker.faults for the type http; 0 means that workers trip no breakers
	// Secrets are signing keys by name. If a name has several keys, each key signs the requests, so that a receiver can
	// change its key.
	Secrets map[string][]string
	// SecretHosts are the hosts to which each secret may sign requests. A process that only enqueues may have the hosts
	// without the keys.
	SecretHosts map[string][]string
}

// Notify has the settings of the calls that announce events.
type Notify struct {
	URL      string // empty means that no event is announced
	Secret   string // name of a secret of Webhook; empty means that the calls are not signed
	Queue    string // queue of the tasks that make the calls
	Kinds    []string
	MinTasks int
	// OldestTask is the maximum age of the oldest due task of a queue. Above it the queue is late; 0 means never.
	OldestTask time.Duration
}

// NotifyKinds are the kinds of events.
var NotifyKinds = []string{"group_appeared", "group_returned", "operation_stopped", "queue_late"}

// Default returns the configuration without file, environment and flags. It is valid.
func Default() Config {
	return Config{
		Database: Database{URL: EmbeddedDatabase, Schema: "holdfast", MaxConns: 20},
		AMQP:     AMQP{URLs: []string{EmbeddedBroker}, Prefix: "holdfast.v1"},
		Log:      Log{Level: "info", Format: "text"},
		Listen:   "127.0.0.1:8480",
		Roles:    []string{RoleWorker, RoleJanitor, RoleConsole},
		Worker:   Worker{Concurrency: 50, DrainTimeout: 25 * time.Second, Lease: 5 * time.Second, Presence: true},
		Producer: Producer{MaxPayload: holdfast.DefaultMaxPayload},
		Janitor: Janitor{
			KeepDone: 168 * time.Hour, KeepCancelled: 168 * time.Hour,
			KeepArchived: 720 * time.Hour, KeepWorkers: 168 * time.Hour,
		},
		Webhook: Webhook{
			Timeout: 30 * time.Second, MaxRetryAfter: time.Hour, MaxResponse: 4096,
			RetryStatuses: []string{"408", "425", "429", "5xx"},
			BreakerFaults: 5,
		},
		Notify:   Notify{Queue: "notify", Kinds: slices.Clone(NotifyKinds), MinTasks: 1, OldestTask: 10 * time.Minute},
		Defaults: holdfast.TypeSettings{Policy: holdfast.DefaultPolicy(), AbandonAfter: time.Hour, Queue: holdfast.DefaultQueue, Breaker: holdfast.DefaultBreakerRules()},
	}
}

// Settings returns the task settings. Those of each configured type are complete.
func (c Config) Settings() holdfast.Settings {
	s := holdfast.Settings{Defaults: c.Defaults, Types: make(map[string]holdfast.TypeSettings)}
	for name := range c.Types {
		s.Types[name] = c.typeSettings(name)
	}
	if _, set := c.origins[webhookBreakerFaults]; set {
		s.Types[holdfast.TypeHTTP] = c.typeSettings(holdfast.TypeHTTP)
	}
	return s
}

// typeSettings returns the complete settings of a type.
func (c Config) typeSettings(name string) holdfast.TypeSettings {
	t, ok := c.Types[name]
	if !ok {
		t = c.Defaults
	}
	for suffix, field := range map[string]*int{breakerFaults: &t.Breaker.Faults, breakerRate: &t.Breaker.Rate} {
		if c.webhookSets(typesPrefix + name + "." + suffix) {
			*field = c.Webhook.BreakerFaults
		}
	}
	return t
}

// Suffixes of the keys that webhook.breaker_faults can set.
const (
	breakerFaults = "breaker.faults"
	breakerRate   = "breaker.rate"
)

// webhookSets reports whether the setting webhook.breaker_faults decides the value of a key of the type http. It does
// if it is set and the key is not set. It decides the rate only if it is 0: then workers trip no breakers.
func (c Config) webhookSets(key string) bool {
	n := c.Webhook.BreakerFaults
	switch key {
	case typesPrefix + holdfast.TypeHTTP + "." + breakerFaults:
	case typesPrefix + holdfast.TypeHTTP + "." + breakerRate:
		if n != 0 {
			return false
		}
	default:
		return false
	}
	_, webhook := c.origins[webhookBreakerFaults]
	_, own := c.origins[key]
	return webhook && !own && n >= 0 && n <= maxBreakerFaults // Validate reports another number
}

// HasRole reports whether serve has the role.
func (c Config) HasRole(role string) bool { return slices.Contains(c.Roles, role) }

// Embedded reports whether the tasks are in a file, which only one process serves.
func (c Config) Embedded() bool { return strings.HasPrefix(c.Database.URL, EmbeddedDatabase) }

// Origin returns the source of the value of a key: "default", "file <path>", "env NAME" or "flag --name". An inherited
// value of a type has the origin of the key in defaults.
func (c Config) Origin(key string) string {
	if origin, ok := c.origins[key]; ok {
		return origin
	}
	if c.webhookSets(key) {
		return c.Origin(webhookBreakerFaults)
	}
	if _, suffix, ok := splitTypeKey(key); ok {
		return c.Origin("defaults." + suffix)
	}
	return "default"
}

// Origins returns the origin of every key, by key. See Origin.
func (c Config) Origins() map[string]string {
	origins := make(map[string]string)
	for _, s := range c.settings() {
		origins[s.key] = c.Origin(s.key)
	}
	return origins
}
