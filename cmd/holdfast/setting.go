package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/app"
	"github.com/holdfastq/holdfast/configs"
	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

type settingCommands struct{ *tool }

func (t settingCommands) command() *cli.Command {
	change := func(name, usage, args, description, example string, act action) *cli.Command {
		return t.verb(name+" "+args, usage,
			description+`
Every process uses the change within 2 s. The audit log has it. With --if-version the command changes nothing if another
person has changed a setting since that version; the exit code is then 4.

Example:
  `+example,
			act, outputFlag())
	}
	return noun("setting settings", "change the settings of tasks while processes run",
		change("set", "store a setting", "KEY VALUE",
			`KEY is the key of a task setting: defaults.KEY for all types, or types.TYPE.KEY for one. The first of these values
applies: types in the store, types in the file or environment of the process, defaults in the store, defaults in the
file or environment. The value and the resulting policy are checked before they are stored.`,
			`holdfast setting set types.http.retry.base 5s --reason "the target is fast again"`, changes(t.tool, openNewStore, t.set)),
		t.verb("get KEY", "print the effective value of a setting",
			`The value is that of a process with the configuration of this command, and the settings in the store.

Example:
  holdfast setting get types.http.retry.base`,
			reads(t.tool, openCheckedStore, t.get), outputFlag()),
		t.verb("list", "list the effective settings of tasks",
			`Lists the settings that the store, or the configuration of this command, sets. With --all it lists every
key of the defaults and of each known type.

Example:
  holdfast setting list`,
			reads(t.tool, openCheckedStore, t.list), outputFlag(), sortFlag()),
		change("unset", "remove stored settings", "KEY...",
			`The settings of the files and the environment apply again. If a setting is not stored, nothing is removed, and the
exit code is 3.`,
			`holdfast setting unset types.http.retry.base`, changes(t.tool, openNewStore, t.unset)),
		t.verb("diff", "compare the stored settings with the configuration",
			`Lists each stored setting whose value differs from that of the configuration of this command, or that has
no effect with it. Run it on another machine, or with another --config, to compare that configuration.

Example:
  holdfast setting diff --config /etc/holdfast.yaml`,
			reads(t.tool, openCheckedStore, t.diff), outputFlag(), sortFlag()),
		change("undo", "take back the last change of a setting", "KEY",
			`The setting gets the value that it had before. An undo cannot be undone. If the last change was an undo, the exit
code is 4.`,
			`holdfast setting undo types.http.retry.base`, changes(t.tool, openCheckedStore, t.undo)),
	)
}

// settingChange is the request of a command that changes settings.
type settingChange struct {
	Version *int64 `json:"if_version" flag:"N" minimum:"0" doc:"Only if the stored settings still have this version."`
}

// check returns an error if the stored settings do not have the version.
func (r settingChange) check(version int64) error {
	if r.Version != nil && *r.Version != version {
		return fmt.Errorf("%w: the stored settings have the version %d, not %d", holdfast.ErrConflict, version, *r.Version)
	}
	return nil
}

func (t settingCommands) set(ctx context.Context, c *cli.Context, b *app.Backend, by store.Actor, r settingChange) error {
	key := c.Args().First()
	after, err := b.ChangeSettings(ctx, by, app.SettingsRequest{Set: map[string]string{key: c.Args().Get(1)}, Check: r.check})
	return t.changed(c, after, err, key)
}

func (t settingCommands) unset(ctx context.Context, c *cli.Context, b *app.Backend, by store.Actor, r settingChange) error {
	keys := slices.Compact(slices.Sorted(slices.Values(c.Args().Slice())))
	after, err := b.ChangeSettings(ctx, by, app.SettingsRequest{Unset: keys, Check: r.check})
	return t.changed(c, after, err, keys...)
}

func (t settingCommands) undo(ctx context.Context, c *cli.Context, b *app.Backend, by store.Actor, r settingChange) error {
	key := c.Args().First()
	after, err := b.UndoSetting(ctx, by, key, r.check)
	return t.changed(c, after, err, key)
}

// changed prints the effective values of keys after a change, unless the change returned err.
func (t settingCommands) changed(c *cli.Context, now app.EffectiveSettings, err error, keys ...string) error {
	if err != nil {
		return err
	}
	entries := []configs.Entry{}
	for _, key := range keys {
		if entry, err := now.Config.TaskEntry(key); err == nil { // a removed key may be unknown to this build
			entries = append(entries, entry)
		}
	}
	return stored(t.entries(c, entries, ""), "the change of %s is stored", strings.Join(keys, ", "))
}

func (t settingCommands) entries(c *cli.Context, entries []configs.Entry, none string) error {
	for i := range entries {
		entries[i].Origin = t.origin(entries[i].Origin)
	}
	return printList(t.tool, c, "settings", entries, none, entryColumns()...)
}

func (t settingCommands) get(ctx context.Context, c *cli.Context, b *app.Backend, _ struct{}) error {
	key := c.Args().First()
	now, err := b.ReadSettings(ctx)
	if err != nil {
		return err
	}
	entry, err := now.Config.TaskEntry(key)
	if err != nil {
		return err
	}
	t.warnIgnored(now, key)
	entry.Origin = t.origin(entry.Origin)
	return printRow(t.tool, c, entry, entryColumns()...)
}

func (t settingCommands) list(ctx context.Context, c *cli.Context, b *app.Backend, r surface.SettingsQuery) error {
	now, err := b.ReadSettings(ctx)
	if err != nil {
		return err
	}
	t.warnIgnored(now, "")
	return t.entries(c, now.Config.TaskEntries(r.All), "every setting has its built-in default; for all of them: holdfast setting list --all")
}

// warnIgnored prints a warning for each stored setting without effect, or only for key if key is not "".
func (t settingCommands) warnIgnored(now app.EffectiveSettings, key string) {
	for _, problem := range now.Ignored {
		if key == "" || problem.Key == key {
			t.say("warning: stored setting ignored: %s: %s", problem.Key, problem.Problem)
		}
	}
}

func (t settingCommands) diff(ctx context.Context, c *cli.Context, b *app.Backend, _ struct{}) error {
	differences, err := surface.SettingDifferences(ctx, b)
	if err != nil {
		return err
	}
	for i := range differences {
		differences[i].Origin = t.origin(differences[i].Origin)
	}
	return printList(t.tool, c, "differences", differences, "no stored setting differs from the configuration",
		column[surface.SettingDifference]{"key", func(d surface.SettingDifference) string { return d.Key }},
		column[surface.SettingDifference]{"stored", func(d surface.SettingDifference) string { return d.Stored }},
		column[surface.SettingDifference]{"configured", func(d surface.SettingDifference) string { return d.Configured }},
		column[surface.SettingDifference]{"origin", func(d surface.SettingDifference) string { return d.Origin }},
		column[surface.SettingDifference]{"ignored", func(d surface.SettingDifference) string { return d.Ignored }},
	)
}
