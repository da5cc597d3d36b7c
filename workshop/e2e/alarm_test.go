package e2e

import (
	"bytes"
	"os/exec"
	"strings"
	"testing"

	"github.com/holdfastq/holdfast"
	"github.com/holdfastq/holdfast/workshop/slow"
)

// While RabbitMQ accepts no messages, holdfast enqueue stores the task, prints a warning and exits.
func TestAnAlarmFailsNoEnqueue(t *testing.T) {
	slow.Skip(t)
	t.Parallel()
	databaseURL, _ := servers(t)
	folder, amqpURL := privateBroker(t)
	w := newWorldOn(t, databaseURL, amqpURL)
	script(t, folder, "private-rabbitmq", nil, "ctl", "set_vm_memory_high_watermark", "0.0000001")
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	var out, problems bytes.Buffer
	cmd := exec.CommandContext(t.Context(), path, "enqueue", "--type", "later")
	cmd.Env = w.environment()
	cmd.Stdout, cmd.Stderr = &out, &problems
	if err := cmd.Run(); err != nil || !strings.Contains(problems.String(), "tasks are stored, but run only when RabbitMQ takes messages again: low on memory") {
		t.Errorf("%v: %s", err, problems.String())
	}
	id, err := holdfast.ParseTaskID(strings.TrimSpace(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	w.task(t, id)
}
