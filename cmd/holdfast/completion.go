package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast/internal/search"
	"github.com/holdfastq/holdfast/store"
)

// candidatesName is the hidden command that the scripts of the shells call.
const candidatesName = "__complete"

type completionCommands struct{ *tool }

func (t completionCommands) command() *cli.Command {
	shells := []struct{ name, how, script string }{
		{"bash", "source <(holdfast completion bash)", bashScript},
		{"zsh", "source <(holdfast completion zsh)", zshScript},
		{"fish", "holdfast completion fish | source", fishScript},
	}
	var verbs []*cli.Command
	for _, shell := range shells {
		verbs = append(verbs, t.verb(shell.name, "print the script for "+shell.name,
			"Add the line of the example to the startup file of "+shell.name+`.

Example:
  `+shell.how,
			plain(func(context.Context, *cli.Context) error {
				_, err := io.WriteString(t.stdout, shell.script)
				return err
			})))
	}
	return noun("completion", "print a script that completes commands, flags and names in your shell", verbs...)
}

func (t completionCommands) candidatesCommand() *cli.Command {
	command := t.verb(candidatesName+" [WORD...]", "list candidates for the last word",
		`Each line is a candidate, a tab and a description. If there are no lines, the word may be any text.

Example:
  holdfast `+candidatesName+` -- task li`,
		plain(func(ctx context.Context, c *cli.Context) error {
			names := func(kind string, global []string) []candidate { return storedNames(ctx, t.tool, kind, global) }
			return writeCandidates(t.stdout, candidates(newProgram(t.tool), c.Args().Slice(), names))
		}))
	command.Hidden = true
	return command
}

// candidate is a possible word with its description.
type candidate struct{ word, text string }

func writeCandidates(w io.Writer, all []candidate) error {
	for _, one := range all {
		if _, err := fmt.Fprintf(w, "%s\t%s\n", one.word, one.text); err != nil {
			return err
		}
	}
	return nil
}

// candidates returns the possible completions of the last word, which may be empty. names returns the names of a kind in
// the store that the global flags choose; see namesCommand.
func candidates(program *cli.App, words []string, names func(kind string, global []string) []candidate) []candidate {
	a := &arranger{program: program}
	if len(words) == 0 {
		words = []string{""}
	}
	last := words[len(words)-1]
	valuesOf := func(flag cli.Flag, name string) []candidate {
		if kind := kindOfFlag[name]; kind != "" {
			return names(kind, a.global)
		}
		return values(flag, name)
	}
	for rest := words[:len(words)-1]; len(rest) > 0; {
		word := rest[0]
		rest = rest[1:]
		if len(word) < 2 || word[0] != '-' {
			if a.word(word) != nil {
				return nil
			}
			continue
		}
		name, _, assigned := strings.Cut(strings.TrimLeft(word, "-"), "=")
		flag := find(slices.Concat(a.localFlags(), program.Flags), name)
		given := 0
		if flag != nil && !assigned && takesValue(flag) {
			if len(rest) == 0 {
				return withPrefix(last, valuesOf(flag, name))
			}
			given = 1
		}
		if flag != nil && find(a.localFlags(), name) == nil {
			a.global = append(append(a.global, word), rest[:given]...)
		}
		rest = rest[given:]
	}
	var all []candidate
	if strings.HasPrefix(last, "-") {
		flags := slices.Concat(a.localFlags(), program.Flags)
		if before, _, assigned := strings.Cut(last, "="); assigned {
			name := strings.TrimLeft(before, "-")
			if flag := find(flags, name); flag != nil && takesValue(flag) {
				for _, value := range valuesOf(flag, name) {
					all = append(all, candidate{before + "=" + value.word, value.text})
				}
			}
			return withPrefix(last, all)
		}
		for _, flag := range flags {
			_, text := describeFlag(flag)
			all = append(all, candidate{"--" + flag.Names()[0], text})
		}
		return withPrefix(last, append(all, candidate{"--help", "explain the command"}))
	}
	if kind := a.kindOfArgument(); kind != "" {
		all = names(kind, a.global)
	}
	for _, command := range a.subcommands() {
		if !command.Hidden {
			all = append(all, candidate{command.Name, command.Usage})
		}
	}
	if len(a.line.path) == 0 && !a.line.help {
		all = append(all, candidate{"help", "explain a command"})
	}
	return withPrefix(last, all)
}

// values returns the candidates for the value of a flag with a name. If the value may be any text, there are none.
func values(flag cli.Flag, name string) []candidate {
	known := map[string][]string{
		"output": {asTable, asJSON, asJSONL}, "o": {asTable, asJSON, asJSONL},
		"state":      search.StateNames(),
		"per":        {string(store.PerKey), string(store.PerTarget)},
		"log-level":  {"debug", "info", "warn", "error"},
		"log-format": {"text", "json"},
	}
	var all []candidate
	words := known[name]
	switch own := flag.(type) {
	case formatFlag:
		words = own.formats
	case describedFlag:
		if own.words != nil {
			words = own.words
		}
	}
	for _, word := range words {
		all = append(all, candidate{word: word})
	}
	return all
}

// withPrefix returns the candidates that begin with prefix.
func withPrefix(prefix string, all []candidate) []candidate {
	return slices.DeleteFunc(all, func(one candidate) bool { return !strings.HasPrefix(one.word, prefix) })
}

// bashScript joins the words that bash splits at characters such as = and :, and removes the part before the last of these
// characters from the candidates, because bash keeps it.
const bashScript = `_holdfast() {
  local IFS=$'\n' rest=$COMP_LINE word
  local -a words=()
  for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
    if [[ ${#words[@]} -gt 0 && -n $rest && $rest != [[:space:]]* ]]; then
      words[${#words[@]}-1]+=$word
    else
      words+=("$word")
    fi
    rest=${rest#*"$word"}
  done
  local kept=${words[${#words[@]}-1]}
  [[ $word != *[!=:]* ]] || kept=${kept%"$word"}
  COMPREPLY=($(holdfast __complete -- "${words[@]:1}" 2>/dev/null | cut -f 1))
  COMPREPLY=("${COMPREPLY[@]#"$kept"}")
}
complete -o default -F _holdfast holdfast
`

const zshScript = `#compdef holdfast
_holdfast() {
  local line
  local -a found
  for line in "${(@f)$(holdfast __complete -- "${(@)words[2,CURRENT]}" 2>/dev/null)}"; do
    [[ -n $line ]] && found+=("${${line%%$'\t'*}//:/\\:}:${line#*$'\t'}")
  done
  if (( $#found )); then
    _describe holdfast found
  else
    _files
  fi
}
if [ "$funcstack[1]" = "_holdfast" ]; then
  _holdfast "$@"
else
  compdef _holdfast holdfast
fi
`

const fishScript = `complete -c holdfast -f -a '(holdfast __complete -- (commandline -opc)[2..-1] (commandline -ct) 2>/dev/null)'
complete -c holdfast -l config -r -F
complete -c holdfast -l jsonl -r -F
complete -c holdfast -l file -s o -r -F -n '__fish_seen_subcommand_from export'
`
