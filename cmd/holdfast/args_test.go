package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast/internal/operate"
	"github.com/holdfastq/holdfast/store"
)

// Flags may be before, between and after the arguments.
func TestArrange(t *testing.T) {
	t.Parallel()
	for typed, want := range map[string]string{
		"task get 42":                           "holdfast task get -- 42",
		"task get 42 -o json":                   "holdfast task get -o json -- 42",
		"task get -o=json 42":                   "holdfast task get -o=json -- 42",
		"task wait 1 --timeout 5s 2":            "holdfast task wait --timeout 5s -- 1 2",
		"tasks list --schema a --limit 3":       "holdfast --schema a task list --limit 3 --",
		"--schema a task --prefix b list":       "holdfast --schema a --prefix b task list --",
		"dead retry --all --error --yes":        "holdfast dead retry --all --error --yes --",
		"enqueue --payload - --type -x":         "holdfast enqueue --payload - --type -x --",
		"task get -- -o":                        "holdfast task get -- -o",
		"task get - ":                           "holdfast task get -- -",
		"dead ls --no-color":                    "holdfast --no-color dead list --",
		"version --set a=b --set=c=d":           "holdfast --set a=b --set=c=d version --",
		"--version":                             "holdfast version --",
		"migrate down --yes --database-url a b": "holdfast --database-url a migrate down --yes -- b",
	} {
		line, err := arrange(newProgram(&tool{}), strings.Fields(typed))
		if got := strings.Join(line.args, " "); err != nil || got != want || line.help {
			t.Errorf("%s: %q, help %t, %v; want %q", typed, got, line.help, err, want)
		}
	}
	for typed, want := range map[string]string{
		"":                       "holdfast",
		"help":                   "holdfast",
		"-h":                     "holdfast",
		"task":                   "holdfast task",
		"help task list":         "holdfast task list",
		"task help list":         "holdfast task list",
		"task list --limit 3 -h": "holdfast task list",
		"--help task":            "holdfast task",
	} {
		line, err := arrange(newProgram(&tool{}), strings.Fields(typed))
		if err != nil || !line.help || line.name() != want {
			t.Errorf("%s: help of %q, %t, %v; want that of %q", typed, line.name(), line.help, err, want)
		}
	}
}

// "help flags" describes the global flags, and "help search" describes searches. Neither is a command.
func TestArrangeHelpOfTopics(t *testing.T) {
	t.Parallel()
	for name := range helpTexts {
		line, err := arrange(newProgram(&tool{}), []string{"help", name})
		if err != nil || !line.help || line.text != name {
			t.Errorf("help %s: %+v, %v", name, line, err)
		}
		if _, err := arrange(newProgram(&tool{}), []string{name}); err == nil {
			t.Errorf("%s alone is accepted as a command", name)
		}
	}
}

// Every command has a usage line and an example, and every flag has a description.
func TestHelpIsComplete(t *testing.T) {
	t.Parallel()
	program := newProgram(&tool{})
	commands := slices.Clone(program.Commands)
	for len(commands) > 0 {
		command := commands[0]
		commands = append(commands[1:], command.Subcommands...)
		if command.Usage == "" {
			t.Errorf("%s has no usage", command.Name)
		}
		if len(command.Subcommands) == 0 && !strings.Contains(command.Description, "Example:\n  ") {
			t.Errorf("%s has no example", command.Name)
		}
		for _, flag := range command.Flags {
			if placeholder, doc := describeFlag(flag); doc == "" || takesValue(flag) && placeholder == "" {
				t.Errorf("%s --%s: placeholder %q, description %q", command.Name, flag.Names()[0], placeholder, doc)
			}
		}
	}
}

// The help of an operation names the defaults of package operate.
func TestOperationFlagsNameTheDefaults(t *testing.T) {
	t.Parallel()
	want := map[string]string{
		"rate":         fmt.Sprintf(" and %d for a retry", operate.DefaultRate),
		"ramp":         fmt.Sprintf(" from %d tasks on", operate.RampFrom),
		"stop-above":   fmt.Sprintf("default %.0f;", 100*operate.DefaultStopAbove),
		"step-timeout": fmt.Sprintf("default %.0fm", operate.DefaultStepTimeout.Minutes()),
	}
	for name, text := range want {
		if _, doc := describeFlag(find(operationFlags(store.ActionRetry), name)); !strings.Contains(doc, text) {
			t.Errorf("--%s: %q does not contain %q", name, doc, text)
		}
	}
}
