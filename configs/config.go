// Package configs is the configuration of the holdfast daemon and command line:
// what can be set, where a value came from, and whether it makes sense.
//
// [Load] merges four layers, the later one winning: defaults, a YAML file, the
// environment, flags. Every key has one environment variable, made from it:
// worker.drain_timeout is HOLDFAST_WORKER_DRAIN_TIMEOUT. The well-known
// DATABASE_URL and AMQP_URL are read too, if the prefixed ones are not set. For a
// secret, the variable with _FILE at its end names a file that holds it. A variable
// that is set but empty counts as not set, and a key with no value in the file keeps
// its default.
//
// Whoever misspells a key is told: an unknown key of the file, an unknown
// HOLDFAST_ variable and an unknown flag are errors that name the closest known
// one. [Load] reports every problem it finds, not only the first.
//
// The settings of tasks have two levels, defaults and types.<name>. A type
// inherits every key it does not set itself.
//
// Values marked as secret, and passwords inside URLs, never appear in [Entry]
// values or in errors.
package configs

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/holdfastq/holdfast"
)

// Config is everything that can be set. Get one from Load or Default: the zero
// value is not valid. Its fields are documented, with units and ranges, by
// Variables and in holdfast.example.yaml.
type Config struct {
	Database Database
	AMQP     AMQP
	Log      Log
	Listen   string   // address of the health and metrics endpoints; empty means none
	Roles    []string // what serve runs: RoleWorker, RoleJanitor
	Worker   Worker
	Producer Producer
	Janitor  Janitor
	Webhook  Webhook
	Defaults holdfast.TypeSettings
	Types    map[string]holdfast.TypeSettings // complete, inherited values included

	origins map[string]string
}

// The roles of a daemon.
const (
	RoleWorker  = "worker"
	RoleJanitor = "janitor"
)

// The embedded default: a file in the user's data folder, and a broker inside the process.
const (
	EmbeddedDatabase = "sqlite:"
	EmbeddedBroker   = "inproc:"
)

// Database is where the tasks live.
type Database struct {
	URL       string // postgres://…, or sqlite: and the path of a file
	DirectURL string // of the same PostgreSQL, past a connection pooler; empty means URL
	Schema    string // of PostgreSQL
	MaxConns  int    // to PostgreSQL
}

// AMQP is the broker and the names used on it.
type AMQP struct {
	URLs   []string // amqp://… or amqps://…, one per node of a cluster; or inproc: alone
	Prefix string
	Shards int // holding queues
}

// Log says what is written to stderr.
type Log struct {
	Level  string
	Format string // text or json
}

// Worker is the consumer's part.
type Worker struct {
	Concurrency  int
	Lanes        []string // empty means every lane
	DrainTimeout time.Duration
	Lease        time.Duration
	ParkFor      time.Duration
	Presence     bool   // show signs of it
	Name         string // empty means host/pid
}

// Producer is the enqueueing part.
type Producer struct {
	MaxPayload     int // bytes
	ConfirmTimeout time.Duration
}

// Janitor is the part that heals and cleans up. Keep values of 0 mean for ever.
type Janitor struct {
	FenceGrace       time.Duration
	PatrolAfter      time.Duration
	SentinelInterval time.Duration
	SentinelSlack    time.Duration
	RebuildEvery     time.Duration
	OutboxGrace      time.Duration
	KeepDone         time.Duration
	KeepCancelled    time.Duration
	KeepArchived     time.Duration
	KeepRuns         time.Duration
}

// Webhook is the HTTP delivery of tasks of type http.
type Webhook struct {
	AllowCIDRs    []netip.Prefix
	Timeout       time.Duration
	MaxRetryAfter time.Duration
	MaxResponse   int      // bytes of a response body that are kept
	RetryStatuses []string // "429" or "5xx"
	// Secrets are signing keys by name; several keys under one name all sign, so
	// that a receiver can move from one to the next.
	Secrets map[string][]string
	// SecretHosts are the hosts that each secret may sign requests to. A process that only enqueues may know them without
	// the keys.
	SecretHosts map[string][]string
}

// Default returns the configuration without a file, environment or flags. It is
// valid.
func Default() Config {
	return Config{
		Database: Database{URL: EmbeddedDatabase, Schema: "holdfast", MaxConns: 20},
		AMQP:     AMQP{URLs: []string{EmbeddedBroker}, Prefix: "holdfast.v1", Shards: 2},
		Log:      Log{Level: "info", Format: "text"},
		Listen:   "127.0.0.1:8480",
		Roles:    []string{RoleWorker, RoleJanitor},
		Worker:   Worker{Concurrency: 50, DrainTimeout: 25 * time.Second, Lease: 5 * time.Second, ParkFor: 15 * time.Second, Presence: true},
		Producer: Producer{MaxPayload: holdfast.DefaultMaxPayload, ConfirmTimeout: 5 * time.Second},
		Janitor: Janitor{
			FenceGrace: 100 * time.Millisecond, PatrolAfter: 10 * time.Second,
			SentinelInterval: 10 * time.Second, SentinelSlack: 30 * time.Second,
			RebuildEvery: 2 * time.Second, OutboxGrace: 2 * time.Second,
			KeepDone: 168 * time.Hour, KeepCancelled: 168 * time.Hour,
			KeepArchived: 720 * time.Hour, KeepRuns: 168 * time.Hour,
		},
		Webhook: Webhook{
			Timeout: 30 * time.Second, MaxRetryAfter: time.Hour, MaxResponse: 4096,
			RetryStatuses: []string{"408", "425", "429", "5xx"},
		},
		Defaults: holdfast.TypeSettings{Policy: holdfast.DefaultPolicy(), Lane: holdfast.DefaultLane},
	}
}

// Settings returns the task settings in the domain's form, complete for every
// configured type.
func (c Config) Settings() holdfast.Settings {
	return holdfast.Settings{Defaults: c.Defaults, Types: maps.Clone(c.Types)}
}

// HasRole reports whether serve runs the role.
func (c Config) HasRole(role string) bool { return slices.Contains(c.Roles, role) }

// Embedded reports whether the tasks are in a file that one process serves.
func (c Config) Embedded() bool { return strings.HasPrefix(c.Database.URL, EmbeddedDatabase) }

// Origin returns where the value of a key came from: "default", "file <path>",
// "env NAME" or "flag --name". An inherited value of a type has the origin of the
// key under defaults.
func (c Config) Origin(key string) string {
	if origin, ok := c.origins[key]; ok {
		return origin
	}
	if _, suffix, ok := splitTypeKey(key); ok {
		return c.Origin("defaults." + suffix)
	}
	return "default"
}

// Origins returns the origin of every key, by key; see Origin.
func (c Config) Origins() map[string]string {
	origins := make(map[string]string)
	for _, s := range c.settings() {
		origins[s.key] = c.Origin(s.key)
	}
	return origins
}
