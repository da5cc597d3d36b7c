package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"
	"github.com/xrash/smetrics"
)

// commandLine is a command line in the order that the library requires: global flags, command, flags of the command,
// arguments. Users may type flags at any position.
type commandLine struct {
	args []string
	path []*cli.Command // from the noun to the verb
	help bool           // help was requested
	text string         // the name of the requested text among helpTexts, or ""
}

// name returns the full name of the command, such as "holdfast task list".
func (l commandLine) name() string {
	name := "holdfast"
	for _, command := range l.path {
		name += " " + command.Name
	}
	return name
}

// arranger parses a command line from left to right.
type arranger struct {
	program *cli.App
	line    commandLine
	global  []string
	local   []string
	words   []string
}

// arrange sorts the arguments of the program. For an unknown command or flag it returns an error that suggests the most
// similar name.
func arrange(program *cli.App, args []string) (commandLine, error) {
	a := &arranger{program: program}
	for len(args) > 0 {
		arg := args[0]
		args = args[1:]
		switch {
		case arg == "--":
			a.words = append(a.words, args...)
			args = nil
		case len(arg) > 1 && arg[0] == '-':
			var err error
			if args, err = a.flag(arg, args); err != nil {
				return a.line, err
			}
		default:
			if err := a.word(arg); err != nil {
				return a.line, err
			}
		}
	}
	if len(a.subcommands()) > 0 { // a noun without a verb
		a.line.help = true
	}
	a.line.args = append([]string{program.Name}, a.global...)
	for _, command := range a.line.path {
		a.line.args = append(a.line.args, command.Name)
	}
	a.line.args = append(a.line.args, a.local...)
	a.line.args = append(append(a.line.args, "--"), a.words...)
	return a.line, nil
}

// subcommands returns the commands that may follow.
func (a *arranger) subcommands() []*cli.Command {
	if len(a.line.path) == 0 {
		return a.program.Commands
	}
	return a.line.path[len(a.line.path)-1].Subcommands
}

// localFlags returns the flags of the command parsed so far.
func (a *arranger) localFlags() []cli.Flag {
	if len(a.line.path) == 0 {
		return nil
	}
	return a.line.path[len(a.line.path)-1].Flags
}

// word parses the name of a command or an argument.
func (a *arranger) word(word string) error {
	commands := a.subcommands()
	if len(commands) == 0 {
		a.words = append(a.words, word)
		return nil
	}
	switch {
	case word == "help":
		a.line.help = true
		return nil
	case helpTexts[word] != nil && a.line.help && len(a.line.path) == 0:
		a.line.text = word
		return nil
	}
	var names []string
	for _, command := range commands {
		if command.HasName(word) {
			a.line.path = append(a.line.path, command)
			return nil
		}
		if !command.Hidden {
			names = append(names, command.Name)
		}
	}
	return usageOf(a.line.name(), "unknown command %q%s", a.line.name()+" "+word, didYouMean(word, names))
}

// flag parses a flag. If the flag takes a value, flag removes it from rest and returns the remaining arguments.
func (a *arranger) flag(arg string, rest []string) ([]string, error) {
	name, _, assigned := strings.Cut(strings.TrimLeft(arg, "-"), "=")
	if name == "help" || name == "h" {
		a.line.help = true
		return rest, nil
	}
	if name == "version" && len(a.line.path) == 0 {
		return rest, a.word("version")
	}
	local := a.localFlags()
	into, found := &a.local, find(local, name)
	if found == nil {
		into, found = &a.global, find(a.program.Flags, name)
	}
	if found == nil {
		known := slices.Concat(flagNames(local), flagNames(a.program.Flags), []string{"--help"})
		return nil, usageOf(a.line.name(), "unknown flag %s%s", strings.SplitN(arg, "=", 2)[0], didYouMean("--"+name, known))
	}
	*into = append(*into, arg)
	if assigned || !takesValue(found) {
		return rest, nil
	}
	if len(rest) == 0 {
		return nil, usageOf(a.line.name(), "%s needs a value", arg)
	}
	*into = append(*into, rest[0])
	return rest[1:], nil
}

func find(flags []cli.Flag, name string) cli.Flag {
	for _, flag := range flags {
		if slices.Contains(flag.Names(), name) {
			return flag
		}
	}
	return nil
}

func takesValue(flag cli.Flag) bool {
	_, is := flag.(*cli.BoolFlag)
	return !is
}

// flagNames returns the long names of flags, with dashes.
func flagNames(flags []cli.Flag) []string {
	var names []string
	for _, flag := range flags {
		names = append(names, "--"+flag.Names()[0])
	}
	return names
}

// didYouMean suggests the candidate that is most similar to word. It returns "" if no candidate is similar enough.
func didYouMean(word string, candidates []string) string {
	const threshold = 0.8 // of 1; a less similar candidate is probably a different word, not a misspelling
	best, score := "", threshold
	for _, candidate := range candidates {
		if s := smetrics.JaroWinkler(strings.TrimLeft(word, "-"), strings.TrimLeft(candidate, "-"), 0.7, 4); s > score {
			best, score = candidate, s
		}
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + best + "?"
}
