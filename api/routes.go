package api

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/holdfastq/holdfast/store"
	"github.com/holdfastq/holdfast/surface"
)

// route is a route of the API.
type route struct {
	method   string
	path     string // below Prefix
	role     Role   // the lowest role that may use the route
	name     string // its operation id in the OpenAPI document
	summary  string
	status   int          // the status of a success; 0 means 200
	body     *requestBody // nil means that the route takes no body
	register func(huma.API, huma.Operation)
	stream   bool // the response has no end
	long     bool // the handler reads all tasks
}

// tag returns the first part of the path, which groups the routes in the document.
func (r route) tag() string {
	tag, _, _ := strings.Cut(strings.TrimPrefix(r.path, "/"), "/")
	return tag
}

// routes returns all routes. To add a route, add a line here.
func (a *API) routes() []route {
	return []route{
		{method: "GET", path: "/tasks", role: Viewer, name: "listTasks", summary: "List tasks, newest first", register: on(a, a.listTasks)},
		{method: "POST", path: "/tasks", role: Operator, name: "enqueue", summary: "Store one task, or several in an array", status: http.StatusCreated, body: newTasks(), register: a.enqueueRoute},
		{method: "GET", path: "/tasks/events", role: Viewer, name: "watchTasks", summary: "Watch a list of tasks as server-sent events", register: a.eventsRoute, stream: true},
		{method: "GET", path: "/tasks/{id}", role: Viewer, name: "getTask", summary: "Get a task with its payload, values and attempts", register: handle(a, ofTask(a.getTask))},
		{method: "GET", path: "/tasks/{id}/explanation", role: Viewer, name: "explainTask", summary: "Say why a task does not run, and what happens next", register: on(a, ofTask(a.explainTask))},
		{method: "GET", path: "/tasks/{id}/attempts", role: Viewer, name: "listAttempts", summary: "List the attempts of a task that did not succeed, oldest first", register: on(a, ofTask(a.listAttempts))},
		{method: "POST", path: "/tasks/{id}/retry", role: Operator, name: "retryTask", summary: "Make a dead or cancelled task ready again, with all its attempts", body: justReason(), register: handle(a, a.act(store.ActionRetry))},
		{method: "POST", path: "/tasks/{id}/cancel", role: Operator, name: "cancelTask", summary: "Stop a task that is ready, running or dead", body: justReason(), register: handle(a, a.act(store.ActionCancel))},
		{method: "PATCH", path: "/tasks/{id}", role: Operator, name: "editTask", summary: "Apply a JSON Patch to payload, queue, priority, max_attempts, run_at and tags", body: jsonPatch(), register: handle(a, ofTask(a.patchTask))},
		{method: "POST", path: "/tasks/{id}/archive", role: Operator, name: "archiveTask", summary: "Put a dead task away", body: justReason(), register: handle(a, a.act(store.ActionArchive))},
		{method: "POST", path: "/tasks/{id}/restore", role: Operator, name: "restoreTask", summary: "Make an archived task dead again", body: justReason(), register: handle(a, a.act(store.ActionRestore))},
		{method: "POST", path: "/tasks/{id}/undo", role: Operator, name: "undoTask", summary: "Take back the last retry, archive or edit of a task", body: justReason(), register: handle(a, ofTask(a.undoTask))},
		{method: "GET", path: "/dead-groups", role: Viewer, name: "listDeadGroups", summary: "Group dead tasks by cause, the largest group first", register: on(a, a.listDeadGroups)},
		{method: "GET", path: "/dead-groups/{fingerprint}", role: Viewer, name: "getDeadGroup", summary: "Get a group of dead tasks with its queues, hours and history", register: handle(a, a.getDeadGroup)},
		{method: "PATCH", path: "/dead-groups/{fingerprint}", role: Operator, name: "changeDeadGroup", summary: "Change the note, the owner or the state of a group of dead tasks", body: bodyOf[groupPatch](), register: handle(a, decoded(a.changeDeadGroup))},
		{method: "GET", path: "/operations", role: Viewer, name: "listOperations", summary: "List operations, newest first", register: on(a, a.listOperations)},
		{method: "POST", path: "/operations", role: Operator, name: "startOperation", summary: "Apply an action to every task that matches a search", status: http.StatusAccepted, body: bodyOf[surface.NewOperation](), register: a.startRoute},
		{method: "GET", path: "/operations/{id}", role: Viewer, name: "getOperation", summary: "Get an operation with its counts", register: on(a, a.getOperation)},
		{method: "POST", path: "/operations/{id}/pause", role: Operator, name: "pauseOperation", summary: "Pause a running operation", body: justReason(), register: on(a, a.control(store.OperationPaused))},
		{method: "POST", path: "/operations/{id}/resume", role: Operator, name: "resumeOperation", summary: "Start a planned operation, or continue a paused or stopped one", body: justReason(), register: on(a, a.control(store.OperationRunning))},
		{method: "POST", path: "/operations/{id}/cancel", role: Operator, name: "cancelOperation", summary: "End an operation before its time", body: justReason(), register: on(a, a.control(store.OperationCancelled))},
		{method: "GET", path: "/audit", role: Viewer, name: "listAudit", summary: "List the changes by people, and the trips of breakers, newest first", register: on(a, a.listAudit)},
		{method: "GET", path: "/gates", role: Viewer, name: "listGates", summary: "List the closed gates (pauses and breakers) and the limits, each oldest first", register: on(a, a.listGates)},
		{method: "POST", path: "/gates", role: Operator, name: "closeGate", summary: "Pause a queue, a type, a key or a target, or change its pause", status: http.StatusCreated, body: bodyOf[surface.NewGate](), register: handle(a, decoded(a.closeGate))},
		{method: "GET", path: "/gates/{id}", role: Viewer, name: "getGate", summary: "Get a closed gate: a pause or a breaker", register: handle(a, a.getGate)},
		{method: "DELETE", path: "/gates/{id}", role: Operator, name: "openGate", summary: "Open a closed gate: end a pause, or reset the breaker of a target", register: on(a, a.openGate)},
		{method: "PUT", path: "/limits", role: Operator, name: "setLimit", summary: "Set or change a limit on how many tasks start or run", body: bodyOf[surface.NewLimit](), register: handle(a, decoded(a.setLimit))},
		{method: "GET", path: "/limits/{id}", role: Viewer, name: "getLimit", summary: "Get a limit with its use", register: handle(a, a.getLimit)},
		{method: "DELETE", path: "/limits/{id}", role: Operator, name: "unsetLimit", summary: "Remove a limit", register: on(a, a.unsetLimit)},
		{method: "GET", path: "/targets", role: Viewer, name: "listTargets", summary: "List the targets that have a breaker, a pause or a limit", register: on(a, a.listTargets)},
		{method: "GET", path: "/targets/state", role: Viewer, name: "getTarget", summary: "Get the breaker, the pause and the limits of a target", register: on(a, a.getTarget)},
		{method: "GET", path: "/keys", role: Viewer, name: "listKeys", summary: "List the keys in which ordered tasks wait or are blocked, those with a dead task first", register: on(a, a.listKeys)},
		{method: "GET", path: "/topics", role: Viewer, name: "listTopics", summary: "List the topics in which tasks are open, by queue and priority", register: on(a, a.listTopics)},
		{method: "GET", path: "/topics/progress", role: Viewer, name: "getTopic", summary: "Get how far the tasks of a topic have come", register: on(a, a.getTopic)},
		{method: "GET", path: "/topics/weights", role: Viewer, name: "listTopicWeights", summary: "List the topics whose weight is not 1", register: on(a, a.listTopicWeights)},
		{method: "PUT", path: "/topics/weights", role: Operator, name: "setTopicWeight", summary: "Set the weight of a topic", body: bodyOf[surface.NewWeight](), register: on(a, decoded(a.setTopicWeight))},
		{method: "GET", path: "/schedules", role: Viewer, name: "listSchedules", summary: "List schedules and backfills by name", register: on(a, a.listSchedules)},
		{method: "POST", path: "/schedules", role: Operator, name: "createSchedule", summary: "Create a schedule, or show its next times", status: http.StatusCreated, body: bodyOf[surface.NewSchedule](), register: a.createScheduleRoute},
		{method: "GET", path: "/schedules/{name}", role: Viewer, name: "getSchedule", summary: "Get a schedule with its next and last times", register: handle(a, a.getSchedule)},
		{method: "PATCH", path: "/schedules/{name}", role: Operator, name: "editSchedule", summary: "Change a schedule, or show its next times after a change", body: bodyOf[surface.ScheduleEdit](), register: handle(a, decoded(a.editSchedule))},
		{method: "DELETE", path: "/schedules/{name}", role: Operator, name: "deleteSchedule", summary: "Delete a schedule or a backfill", register: handle(a, a.changeSchedule(a.b.DeleteSchedule))},
		{method: "POST", path: "/schedules/{name}/pause", role: Operator, name: "pauseSchedule", summary: "Pause a schedule or a backfill", body: justReason(), register: handle(a, a.changeSchedule(a.b.PauseSchedule))},
		{method: "POST", path: "/schedules/{name}/resume", role: Operator, name: "resumeSchedule", summary: "End the pause of a schedule or a backfill", body: justReason(), register: handle(a, a.changeSchedule(a.b.ResumeSchedule))},
		{method: "POST", path: "/schedules/{name}/run", role: Operator, name: "runSchedule", summary: "Store a task of a schedule now", status: http.StatusCreated, body: justReason(), register: on(a, a.runSchedule)},
		{method: "POST", path: "/schedules/{name}/backfill", role: Operator, name: "backfillSchedule", summary: "Run the times of a schedule in a range", status: http.StatusCreated, body: bodyOf[surface.Backfill](), register: handle(a, decoded(a.backfillSchedule))},
		{method: "GET", path: "/sources", role: Viewer, name: "listSources", summary: "List sources and backfills by name", register: on(a, a.listSources)},
		{method: "GET", path: "/sources/{name}", role: Viewer, name: "getSource", summary: "Get a source with its settings and its progress", register: handle(a, a.getSource)},
		{method: "PUT", path: "/sources/{name}", role: Operator, name: "setSource", summary: "Create a source, or change its settings", body: bodyOf[surface.SetSourceRequest](), register: handle(a, decoded(a.setSource))},
		{method: "DELETE", path: "/sources/{name}", role: Operator, name: "deleteSource", summary: "Delete a source or a backfill", register: on(a, a.deleteSource)},
		{method: "POST", path: "/sources/{name}/backfill", role: Operator, name: "backfillSource", summary: "Pull a source again in a range", status: http.StatusCreated, body: bodyOf[surface.SourceBackfill](), register: handle(a, decoded(a.backfillSource))},
		{method: "GET", path: "/slices", role: Viewer, name: "listSlices", summary: "List the open and the dead slices of a source, earliest first", register: on(a, a.listSlices)},
		{method: "GET", path: "/shard-jobs", role: Viewer, name: "listShardJobs", summary: "List shard jobs by name", register: on(a, a.listShardJobs)},
		{method: "GET", path: "/shard-jobs/{name}", role: Viewer, name: "getShardJob", summary: "Get a shard job with its zones and their passes and offsets", register: handle(a, a.getShardJob)},
		{method: "PUT", path: "/shard-jobs/{name}", role: Operator, name: "setShardJob", summary: "Create a shard job, or change it", body: bodyOf[surface.SetShardJobRequest](), register: handle(a, decoded(a.setShardJob))},
		{method: "DELETE", path: "/shard-jobs/{name}", role: Operator, name: "deleteShardJob", summary: "Delete a shard job with its offsets", register: handle(a, a.deleteShardJob)},
		{method: "GET", path: "/shard-jobs/{name}/map", role: Viewer, name: "getShardMap", summary: "Get the zone and the offset of each shard", register: handle(a, a.getShardMap)},
		{method: "POST", path: "/shard-jobs/{name}/move", role: Operator, name: "moveShard", summary: "Move a shard with its offset to another zone", body: bodyOf[surface.ShardMove](), register: handle(a, decoded(changeShardMap(a, surface.MoveShard)))},
		{method: "POST", path: "/shard-jobs/{name}/drain", role: Operator, name: "drainZone", summary: "Move the shards of a zone to the other zones", body: bodyOf[surface.ZoneDrain](), register: handle(a, decoded(changeShardMap(a, surface.DrainZone)))},
		{method: "GET", path: "/batches", role: Viewer, name: "listBatches", summary: "List batches, newest first", register: on(a, a.listBatches)},
		{method: "POST", path: "/batches", role: Operator, name: "startBatch", summary: "Start a batch: many tasks with one end", status: http.StatusCreated, body: bodyOf[surface.NewBatch](), register: a.startBatchRoute},
		{method: "GET", path: "/batches/{id}", role: Viewer, name: "getBatch", summary: "Get a batch with its stages and counts", register: handle(a, a.getBatch)},
		{method: "POST", path: "/batches/{id}/pages/{number}", role: Operator, name: "pushBatch", summary: "Store a page of subtasks in an open batch", body: pageOfSubtasks(), register: on(a, decoded(a.pushBatch))},
		{method: "POST", path: "/batches/{id}/seal", role: Operator, name: "sealBatch", summary: "Say that an open batch gets no more subtasks", body: justReason(), register: handle(a, a.changeBatch(a.b.SealBatch))},
		{method: "POST", path: "/batches/{id}/pause", role: Operator, name: "pauseBatch", summary: "Store no more tasks of a batch until it is resumed", body: justReason(), register: handle(a, a.changeBatch(a.b.PauseBatch))},
		{method: "POST", path: "/batches/{id}/resume", role: Operator, name: "resumeBatch", summary: "Continue a batch that is paused, or stopped, without its failures so far", body: justReason(), register: handle(a, a.changeBatch(a.b.ResumeBatch))},
		{method: "POST", path: "/batches/{id}/cancel", role: Operator, name: "cancelBatch", summary: "End a batch, and start an operation that cancels its tasks", body: justReason(), register: handle(a, a.operateBatch(surface.CancelBatch))},
		{method: "POST", path: "/batches/{id}/retry", role: Operator, name: "retryBatch", summary: "Start an operation that retries the dead tasks of a batch", body: justReason(), register: handle(a, a.operateBatch(surface.RetryBatch))},
		{method: "GET", path: "/batches/{id}/results", role: Viewer, name: "listBatchResults", summary: "List the subtasks of the first stage of a batch with their outputs", register: on(a, a.listBatchResults)},
		{method: "GET", path: "/counts", role: Viewer, name: "getCounts", summary: "Count tasks by state, in total and by queue, workers and executors", register: on(a, a.getCounts)},
		{method: "GET", path: "/queues", role: Viewer, name: "listQueues", summary: "List queues with their tasks, workers and messages", register: on(a, a.listQueues)},
		{method: "GET", path: "/workers", role: Viewer, name: "listWorkers", summary: "List workers, newest first", register: on(a, a.listWorkers)},
		{method: "POST", path: "/workers/{id}/drain", role: Admin, name: "drainWorker", summary: "Stop a worker after it has finished its running tasks", register: on(a, a.drainWorker)},
		{method: "POST", path: "/workers/drain", role: Admin, name: "drainWorkers", summary: "Stop every live worker after it has finished its running tasks", body: bodyOf[drainRequest](), register: on(a, decoded(a.drainWorkers))},
		{method: "POST", path: "/verify", role: Operator, name: "verifyTasks", summary: "Look for tasks that break an invariant, and change none", register: on(a, a.verifyTasks), long: true},
		{method: "GET", path: "/recovery", role: Viewer, name: "planRecovery", summary: "Say what the broker has lost, and how long a recovery takes", register: on(a, a.planRecovery), long: true},
		{method: "POST", path: "/recovery", role: Admin, name: "recover", summary: "Replace at once what the broker has lost", register: on(a, a.recover), long: true},
		{method: "POST", path: "/policy/simulation", role: Viewer, name: "simulatePolicy", summary: "Compute the attempts of a task that always fails", body: bodyOf[surface.Simulation](), register: on(a, decoded(a.simulatePolicy))},
		{method: "GET", path: "/types", role: Viewer, name: "listTypes", summary: "List the task types whose payloads have a JSON Schema", register: on(a, a.listTypes)},
		{method: "GET", path: "/settings", role: Viewer, name: "listSettings", summary: "List the task settings that are in effect, with their origins", register: handle(a, a.listSettings)},
		{method: "PATCH", path: "/settings", role: Admin, name: "changeSettings", summary: "Change or remove task settings while processes run", body: bodyOf[settingsPatch](), register: handle(a, decoded(a.changeSettings))},
		{method: "POST", path: "/settings/undo", role: Admin, name: "undoSetting", summary: "Take back the last change of a task setting", body: bodyOf[settingKey](), register: handle(a, decoded(a.undoSetting))},
		{method: "GET", path: "/config", role: Admin, name: "getConfig", summary: "List every setting of this process with its origin", register: on(a, a.getConfig)},
		{method: "GET", path: "/tokens", role: Admin, name: "listTokens", summary: "List the tokens of this API", register: on(a, a.listTokens)},
		{method: "POST", path: "/tokens", role: Admin, name: "createToken", summary: "Create a token and return its secret, once", body: bodyOf[surface.NewToken](), register: on(a, decoded(a.createToken))},
		{method: "DELETE", path: "/tokens/{name}", role: Admin, name: "revokeToken", summary: "Revoke a token", register: on(a, a.revokeToken)},
		{method: "GET", path: "/openapi.json", role: Anyone, name: "getOpenAPI", summary: "Get this document", register: a.documentRoute},
	}
}

// Operation is an operation of the API, for other surfaces that offer it.
type Operation struct {
	Method string
	Path   string // with the prefix; parameters have the form {id}
	Role   Role   // the lowest role that may use it
}

// Operations returns the operations by their ids, such as retryTask.
func (a *API) Operations() map[string]Operation {
	found := make(map[string]Operation)
	for _, r := range a.routes() {
		found[r.name] = Operation{r.method, Prefix + r.path, r.role}
	}
	return found
}

// body is a response with a JSON body.
type body[T any] struct{ Body T }

// on returns the function that registers a handler. I has the parameters, and O is the body of the response.
func on[I, O any](a *API, handler func(context.Context, *I) (O, error)) func(huma.API, huma.Operation) {
	return handle(a, func(ctx context.Context, in *I) (*body[O], error) {
		out, err := handler(ctx, in)
		return &body[O]{out}, err
	})
}

// handle is like on, for a handler that returns the whole response: a struct with Body and headers.
func handle[I, O any](a *API, handler func(context.Context, *I) (*O, error)) func(huma.API, huma.Operation) {
	return func(described huma.API, op huma.Operation) {
		huma.Register(described, op, func(ctx context.Context, in *I) (*O, error) {
			out, err := handler(ctx, in)
			if err != nil {
				return nil, a.failed(ctx, op, err)
			}
			return out, nil
		})
	}
}

// failed returns the problem for the error of a handler, and logs it if the server is at fault.
func (a *API) failed(ctx context.Context, op huma.Operation, err error) *Problem {
	p := a.problemOf(err)
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		return newProblem(http.StatusServiceUnavailable, "unavailable", "the request was cancelled") // the client is gone
	}
	a.logProblem(op.Method, op.Path, p)
	return p
}

// documentRoute registers the route of the OpenAPI document.
func (a *API) documentRoute(described huma.API, op huma.Operation) {
	type document struct {
		Kind string `header:"Content-Type"`
		Body []byte
	}
	op.Responses["200"] = response("The document.", jsonType, new(huma.Schema))
	huma.Register(described, op, func(context.Context, *struct{}) (*document, error) {
		return &document{jsonType, a.served}, nil
	})
}
