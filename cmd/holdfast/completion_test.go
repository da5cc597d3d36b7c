package main

import (
	"slices"
	"strings"
	"testing"
)

func TestCandidates(t *testing.T) {
	t.Parallel()
	for typed, want := range map[string]string{
		"":                         "demo serve top doctor bench enqueue task dead operation audit queue type key target gate limit topic schedule batch slice shard worker verify recover topology holding migrate export import config setting policy token completion version help",
		"ta":                       "task target",
		"task ":                    "list count get explain attempts output edit retry cancel undo wait",
		"tasks l":                  "list",
		"setting ":                 "set get list unset diff undo",
		"policy ":                  "simulate",
		"policy simulate --f":      "--from",
		"help dead ":               "groups show note assign resolve reopen list retry archive restore purge",
		"nosuch ":                  "",
		"task get ":                "",
		"worker drain --o":         "--output",
		"task list --st":           "--state",
		"queue ":                   "list count pause resume",
		"targets ":                 "get pause resume",
		"key ":                     "list pause resume",
		"type pause http --":       "--output --for --reason --as --config --database-url --amqp-url --schema --prefix --log-level --log-format --no-color --set --help",
		"gate ":                    "list",
		"limits ":                  "set unset",
		"key list --":              "--output --dead --limit --sort --watch --config --database-url --amqp-url --schema --prefix --log-level --log-format --no-color --set --help",
		"limit set --type http --": "--output --queue --type --key --target --per --rate --concurrency --reason --as --config --database-url --amqp-url --schema --prefix --log-level --log-format --no-color --set --help",
		"limit unset --per ":       "key target",
		"topics ":                  "list get set weights",
		"to":                       "top topic topology token",
		"schedules ":               "create list get edit pause resume run backfill delete",
		"slice ":                   "source list backfill",
		"slices sources ":          "set get list delete",
		"slice source set a --o":   "--output --overlap",
		"shard ":                   "job map move drain",
		"shards job ":              "set list get delete",
		"shard maps ":              "get",
		"batches ":                 "start list get watch pause resume cancel retry result",
		"batch list --state ":      "running paused stopped done cancelled",
		"batch result 1 -o ":       "jsonl csv",
		"batch cancel 1 --w":       "--wait",
		"schedule edit a --o":      "--output --overlap --ordered",
		"topic list --":            "--output --queue --limit --after --sort --watch --config --database-url --amqp-url --schema --prefix --log-level --log-format --no-color --set --help",
		"topic set a --":           "--output --weight --reason --as --config --database-url --amqp-url --schema --prefix --log-level --log-format --no-color --set --help",
		"task list --state d":      "done dead",
		"task list -o ":            "table json jsonl",
		"task list -o json --lim":  "--limit",
		"--log-level d":            "debug",
		"--schema x version --log": "--log-level --log-format",
		"enqueue --jsonl ":         "",
		"enqueue --t":              "--type --topic --tag",
		"enqueue --tag ":           "",
		"task list --limit=3 -":    "--output --state --query --type --queue --error --since --until --limit --before --sort --watch --config --database-url --amqp-url --schema --prefix --log-level --log-format --no-color --set --help",
	} {
		words := strings.Split(typed, " ")
		var got []string
		for _, one := range candidates(newProgram(&tool{}), words) {
			got = append(got, one.word)
		}
		if !slices.Equal(got, strings.Fields(want)) {
			t.Errorf("%q: %q, want %q", typed, got, want)
		}
	}
}
