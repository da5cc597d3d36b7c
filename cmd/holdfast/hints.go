package main

import (
	"strings"

	"github.com/sirupsen/logrus"

	"github.com/holdfastq/holdfast"
)

// wordings says every hint in the words of this program. ARG stands for what the hint is about.
var wordings = map[holdfast.HintKind]string{
	holdfast.HintAdvice: "ARG",
	holdfast.HintRetry:  "try again; if it stays, see docs/troubleshoot.md",

	holdfast.HintMigrate:         "run: holdfast migrate up",
	holdfast.HintMigrationStatus: "see: holdfast migrate status",
	holdfast.HintUpgrade:         "use a newer version of this program, which knows that schema",
	holdfast.HintGrant:           "as the owner of the tables: ARG",
	holdfast.HintFindGrant:       "to see which right is missing, run: holdfast doctor",
	holdfast.HintSessionSettings: "set them for the role, with: alter role ARG set NAME = VALUE; see docs/poolers.md",

	holdfast.HintCreateDatabase:  "make it with: holdfast serve, holdfast enqueue or holdfast migrate up",
	holdfast.HintDatabaseAccess:  "give this user the right to read and write the file and its folder, or name another file in DATABASE_URL",
	holdfast.HintRestoreDatabase: "stop the server and restore a backup; without one, save what can be read with: sqlite3 ARG .recover; see docs/troubleshoot.md, The file is damaged",
	holdfast.HintReturnDatabase:  "stop the server, put the file back if it was moved by mistake or restore a backup, then: holdfast serve",

	holdfast.HintSetDatabase:     "set DATABASE_URL, for example ARG",
	holdfast.HintCheckDatabase:   "check ARG in DATABASE_URL; to see where its value comes from: holdfast config show",
	holdfast.HintReachDatabase:   "check that the server runs, and host and port in DATABASE_URL; to see where its value comes from: holdfast config show",
	holdfast.HintPrimary:         "connect to the primary, or name all hosts and add target_session_attrs=read-write to DATABASE_URL",
	holdfast.HintDirectURL:       "set database.direct_url to the server itself; see docs/poolers.md",
	holdfast.HintSetBroker:       "set AMQP_URL, for example ARG",
	holdfast.HintSetServers:      "set DATABASE_URL too, for example ARG, or unset AMQP_URL",
	holdfast.HintCheckBroker:     "check ARG in AMQP_URL; to see where its value comes from: holdfast config show",
	holdfast.HintReachBroker:     "check that RabbitMQ runs there, that AMQP_URL is right, and that nothing in between drops packets",
	holdfast.HintDeclareTopology: "start a janitor (holdfast serve), or: holdfast topology apply",
	holdfast.HintReplaceQueue:    "stop all workers, delete ARG in RabbitMQ, then: holdfast topology apply",
	holdfast.HintReadQuarantine:  "read the messages, then purge ARG: see docs/troubleshoot.md, Messages are in the quarantine",

	holdfast.HintServe:          "start one: holdfast serve",
	holdfast.HintServeQueue:     "start one that does: holdfast serve --lanes ARG",
	holdfast.HintServeJanitor:   "start one: holdfast serve --roles janitor; without a janitor no task is retried or handed back",
	holdfast.HintAllRoles:       "leave --roles out, or name worker and janitor; to split them, use PostgreSQL and RabbitMQ",
	holdfast.HintListen:         "choose another address with: holdfast serve --listen HOST:PORT",
	holdfast.HintReadiness:      "ask /healthz/ready of ARG why",
	holdfast.HintRestartWorkers: "restart every worker that has run since before that, so that tasks it finished meanwhile run again; see docs/backup.md",
	holdfast.HintStopWorkers:    "stop every holdfast serve of this store with SIGTERM first; if its process is gone, start holdfast serve once and stop it",
	holdfast.HintFinishTasks:    "start holdfast serve, wait until it has finished or handed back such tasks, stop it with SIGTERM, then export again",
	holdfast.HintExportAgain:    "write the export again, with: holdfast export",

	holdfast.HintAllowAddress: "to permit its network, set webhook.allow_cidrs or use: holdfast serve --allow-cidr CIDR",
	holdfast.HintAllowHost:    "add the host to webhook.secret_hosts.ARG if the secret may sign for it",

	holdfast.HintShowSettings: "to see where each value comes from: holdfast config show",
}

// wording is a hint in words, "" if there is none.
func wording(h holdfast.Hint) string {
	return strings.ReplaceAll(wordings[h.Kind], "ARG", h.Arg)
}

// hints adds the hint of an error to a line of the log.
type hints struct{}

// Levels implements logrus.Hook.
func (hints) Levels() []logrus.Level { return logrus.AllLevels }

// Fire implements logrus.Hook.
func (hints) Fire(entry *logrus.Entry) error {
	err, _ := entry.Data[logrus.ErrorKey].(error)
	if text := wording(holdfast.HintOf(err)); text != "" {
		entry.Data["hint"] = text
	}
	return nil
}
