package main

import (
	"bytes"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/sirupsen/logrus"
	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/configs"
)

// hintKinds reads the constants of type HintKind from the source.
func hintKinds(t *testing.T) (kinds []holdfast.HintKind) {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "../../hint.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	ast.Inspect(file, func(node ast.Node) bool {
		spec, ok := node.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if of, ok := spec.Type.(*ast.Ident); ok && of.Name == "HintKind" {
			kind, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			kinds = append(kinds, holdfast.HintKind(kind))
		}
		return true
	})
	if !slices.Contains(kinds, holdfast.HintMigrate) || !slices.Contains(kinds, holdfast.HintShowSettings) {
		t.Fatalf("the kinds %q are incomplete", kinds)
	}
	return kinds
}

func TestEveryHintIsWorded(t *testing.T) {
	t.Parallel()
	kinds := hintKinds(t)
	for i, kind := range kinds {
		if hintTexts[kind] == "" {
			t.Errorf("%s has no text", kind)
		}
		if slices.Contains(kinds[:i], kind) {
			t.Errorf("two kinds are named %s", kind)
		}
	}
	for kind := range hintTexts {
		if !slices.Contains(kinds, kind) {
			t.Errorf("there is no kind %s", kind)
		}
	}
	if got := hintText(holdfast.Hint{}); got != "" {
		t.Errorf("the zero hint has the text %q", got)
	}
	if got := hintText(holdfast.Hint{Kind: holdfast.HintServeQueue, Arg: "mail"}); !strings.HasSuffix(got, "--queues mail") {
		t.Errorf("got %q", got)
	}
}

var (
	commandsIn  = regexp.MustCompile(`\bholdfast((?: --?[a-z-]+| [a-z]+\b)+)`)
	flagsIn     = regexp.MustCompile(`--[a-z][a-z-]*`)
	variablesIn = regexp.MustCompile(`\b[A-Z]+_[A-Z_]+\b`)
	keysIn      = regexp.MustCompile(`\b(?:amqp|database|janitor|log|producer|webhook|worker)\.[a-z_]+\b`)
)

// unknownNames returns the commands, flags, variables and keys in text that do not exist.
func unknownNames(program *cli.App, text string) (unknown []string) {
	for _, typed := range commandsIn.FindAllStringSubmatch(text, -1) {
		commands, flags := program.Commands, program.Flags
		for _, word := range strings.Fields(typed[1]) {
			if strings.HasPrefix(word, "-") || len(commands) == 0 {
				break
			}
			i := slices.IndexFunc(commands, func(c *cli.Command) bool { return c.HasName(word) })
			if i < 0 {
				unknown = append(unknown, "holdfast"+typed[1])
				break
			}
			flags = slices.Concat(program.Flags, commands[i].Flags)
			commands = commands[i].Subcommands
		}
		for _, name := range flagsIn.FindAllString(typed[1], -1) {
			if find(flags, strings.TrimPrefix(name, "--")) == nil {
				unknown = append(unknown, name)
			}
		}
	}
	var variables, keys []string
	for _, v := range configs.Variables() {
		variables = append(variables, v.Name, v.Also)
		keys = append(keys, strings.TrimSuffix(v.Key, ".<name>"))
	}
	for _, name := range variablesIn.FindAllString(text, -1) {
		if !slices.Contains(variables, name) {
			unknown = append(unknown, name)
		}
	}
	for _, key := range keysIn.FindAllString(text, -1) {
		if !slices.Contains(keys, key) {
			unknown = append(unknown, key)
		}
	}
	return unknown
}

// Every command, flag, setting and environment variable in a hint exists.
func TestHintsNameWhatExists(t *testing.T) {
	t.Parallel()
	program := newProgram(&tool{})
	for kind, text := range hintTexts {
		if unknown := unknownNames(program, text); len(unknown) > 0 {
			t.Errorf("%s names %q, which do not exist: %s", kind, unknown, text)
		}
	}
	for text, want := range map[string]string{
		"run: holdfast migrate up":                "",
		"run: holdfast migrate upp":               "holdfast migrate upp",
		"run: holdfast server":                    "holdfast server",
		"run: holdfast serve --queue ARG":         "--queue",
		"run: holdfast topology apply --yes":      "--yes",
		"run: holdfast --schema a doctor":         "",
		"set DATABASE_URL or worker.lease":        "",
		"set DATABASE_URI or database.direct_uri": "DATABASE_URI database.direct_uri",
		"start holdfast serve once and stop it":   "",
	} {
		if got := strings.Join(unknownNames(program, text), " "); got != want {
			t.Errorf("%s: unknown %q, want %q", text, got, want)
		}
	}
}

func TestHintsAreInTheLog(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := (&tool{terminal: terminal{stderr: &out}}).logger(configs.Config{})
	log.WithError(holdfast.WithHint(errors.New("old"), holdfast.Hint{Kind: holdfast.HintMigrate})).Error("no claim")
	log.WithError(errors.New("none")).Error("no claim")
	log.WithField(logrus.ErrorKey, "a text").Error("no claim")
	if text := out.String(); strings.Count(text, "hint=") != 1 || !strings.Contains(text, `hint="run: holdfast migrate up"`) {
		t.Error(text)
	}
}
