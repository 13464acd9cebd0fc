#include "lockstep/core/options.hpp"

#include <gtest/gtest.h>

#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>

#include "lockstep/core/error.hpp"
#include "support/temporary_folder.hpp"
#include "support/throws.hpp"
#include "unit/core/sample_options.hpp"

namespace lockstep {
namespace {

Sample parsed(const std::vector<std::string>& words) { return sample_table().parse(words).options; }

/// The message that the words are refused with; a failure when they are accepted.
std::string refusal(const OptionTable<Sample>& table, const std::vector<std::string>& words,
                    const Environment& environment = {}) {
  try {
    table.parse(words, environment);
  } catch (const UsageError& error) {
    return error.what();
  }
  ADD_FAILURE() << "the words were accepted";
  return "";
}

std::string refusal(const std::vector<std::string>& words) { return refusal(sample_table(), words); }

TEST(Options, DefaultsAreThoseOfTheStruct) {
  const auto result = sample_table().parse(std::vector<std::string>{});
  EXPECT_FALSE(result.help);
  EXPECT_TRUE(result.given.empty());
  EXPECT_EQ(result.options.epochs, 10);
  EXPECT_EQ(result.options.device, "auto");
  EXPECT_FALSE(result.options.data.has_value());
}

TEST(Options, ReadsEveryType) {
  const Sample options =
      parsed({"--epochs=3", "--workers", "0", "--seed", "18446744073709551615", "--learning_rate", "5e-05",
              "--clip=inf", "--device", "cuda", "--output-dir", "a b", "--data=x=y", "--warmup", ".5",
              "--compiled", "--columns", "a,b,,c,d"});
  EXPECT_EQ(options.epochs, 3);
  EXPECT_EQ(options.workers, 0);
  EXPECT_EQ(options.seed, std::numeric_limits<std::uint64_t>::max());
  EXPECT_DOUBLE_EQ(options.learning_rate, 5e-5);
  EXPECT_EQ(options.clip, std::numeric_limits<double>::infinity());
  EXPECT_EQ(options.device, "cuda");
  EXPECT_EQ(options.output_dir, "a b");
  EXPECT_EQ(options.data, "x=y");
  EXPECT_EQ(options.warmup, 0.5);
  EXPECT_EQ(options.compiled, true);
  EXPECT_EQ(options.columns, (std::vector<std::string>{"a", "b,c", "d"}));
}

TEST(Options, ReadsCAndCppCommandLines) {
  const char* const argv[] = {"sample", "--epochs", "7"};
  EXPECT_EQ(sample_table().parse(3, argv).options.epochs, 7);
  EXPECT_EQ(sample_table().parse(1, argv).options.epochs, 10);
}

TEST(Options, SwitchesHaveThreeSpellings) {
  EXPECT_TRUE(parsed({"--resume"}).resume);
  EXPECT_TRUE(parsed({"--resume=True"}).resume);
  EXPECT_FALSE(parsed({"--resume", "--no-resume"}).resume);
  EXPECT_FALSE(parsed({"--no_shuffle"}).shuffle);
  EXPECT_FALSE(parsed({"--shuffle=0"}).shuffle);
  EXPECT_EQ(parsed({"--no-compiled"}).compiled, false);
}

TEST(Options, LettersStandForFlags) {
  EXPECT_EQ(parsed({"-w3"}).workers, 3);
  EXPECT_EQ(parsed({"-w", "3"}).workers, 3);
  EXPECT_EQ(parsed({"-w=3"}).workers, 3);
  const Sample both = parsed({"-rw5"});
  EXPECT_TRUE(both.resume);
  EXPECT_EQ(both.workers, 5);
}

TEST(Options, TheLastOfTwoHolds) {
  EXPECT_EQ(parsed({"--epochs", "3", "--epochs", "4"}).epochs, 4);
  EXPECT_EQ(parsed({"--columns", "a", "--columns", "b"}).columns, std::vector<std::string>{"b"});
}

TEST(Options, ListsMayAccumulate) {
  struct Lists {
    std::vector<std::string> parts = {"default"};
  };
  const auto table = OptionTable<Lists>("lists", "Reads.")
                         .add("parts", &Lists::parts, "Parts.", short_name('p'), accumulate());
  const auto parts = [&](const std::vector<std::string>& words) { return table.parse(words).options.parts; };
  EXPECT_EQ(parts({}), std::vector<std::string>{"default"});
  EXPECT_EQ(parts({"--parts", "a,b", "-pc", "--parts=d,,e"}),
            (std::vector<std::string>{"a", "b", "c", "d,e"}));
}

/// The result names the spelling of each flag itself, however the words before it were joined or divided.
TEST(Options, EachSettingKeepsItsOwnSpelling) {
  const auto result = sample_table().parse(
      std::vector<std::string>{"-rw5", "--no_shuffle", "--data", "-1", "--data=--epochs=7", "--clip", "-.5"});
  EXPECT_EQ(result.options.workers, 5);
  EXPECT_EQ(result.options.data, "--epochs=7");
  EXPECT_EQ(result.options.epochs, 10);
  EXPECT_EQ(result.options.clip, -0.5);
  using Given = std::map<std::string, std::string, std::less<>>;
  EXPECT_EQ(result.given, (Given{{"resume", "-r"},
                                 {"workers", "-w"},
                                 {"shuffle", "--no-shuffle"},
                                 {"data", "--data"},
                                 {"clip", "--clip"}}));
  EXPECT_EQ(refusal({"--resume", "-w9999"}), "-w '9999': expected a 32-bit integer, from 0 to 64.");
}

TEST(Options, SaysWhatWasGiven) {
  const auto result = sample_table().parse(std::vector<std::string>{"--learning_rate", "1", "-r"});
  EXPECT_TRUE(result.was_given("learning-rate"));
  EXPECT_TRUE(result.was_given("resume"));
  EXPECT_FALSE(result.was_given("epochs"));
  EXPECT_EQ(result.given.at("resume"), "-r");
}

TEST(Options, HelpEndsTheReading) {
  EXPECT_TRUE(sample_table().parse(std::vector<std::string>{"--help", "--nonsense"}).help);
  EXPECT_TRUE(sample_table().parse(std::vector<std::string>{"-h"}).help);
}

TEST(Options, NumbersAreReadWholly) {
  EXPECT_EQ(refusal({"--epochs", "3x"}), "--epochs '3x': expected a 64-bit integer, at least 1.");
  for (const auto* text : {"", " 3", "3 ", "0x3", "3.0", "1e1", "9223372036854775808", "+3", "nan"}) {
    EXPECT_NE(
        refusal({std::string("--epochs=") + text}).find("--epochs '" + std::string(text) + "': expected"),
        std::string::npos);
  }
  for (const auto* text : {"", "1e999", "nan", "inf", "1,5", "0.1f"}) {
    EXPECT_NE(refusal({std::string("--learning-rate=") + text}).find("--learning-rate"), std::string::npos);
  }
  EXPECT_NE(refusal({"--workers=2147483648"}).find("a 32-bit integer"), std::string::npos);
  EXPECT_NE(refusal({"--seed=-1"}).find("an unsigned 64-bit integer"), std::string::npos);
}

TEST(Options, BoundsAreHeld) {
  EXPECT_NE(refusal({"--epochs=0"}).find("at least 1"), std::string::npos);
  EXPECT_NE(refusal({"--epochs", "-3"}).find("--epochs '-3'"), std::string::npos);
  EXPECT_NE(refusal({"--learning-rate=0"}).find("a number, more than 0"), std::string::npos);
  EXPECT_NE(refusal({"--workers=65"}).find("from 0 to 64"), std::string::npos);
  EXPECT_NE(refusal({"--warmup=1"}).find("at least 0, less than 1"), std::string::npos);
  EXPECT_EQ(refusal({"--device", "cdua"}),
            "--device 'cdua': expected one of auto, cpu, cuda (did you mean 'cuda'?).");
  EXPECT_EQ(refusal({"--output-dir="}), "--output-dir '': expected a non-empty string.");
  EXPECT_NE(refusal({"--resume=maybe"}).find("--resume 'maybe': expected true or false"), std::string::npos);
}

TEST(Options, UnknownFlagsNameTheNearest) {
  EXPECT_EQ(refusal({"--epoch", "3"}),
            "unknown flag --epoch (did you mean '--epochs'?). See --help for all flags.");
  EXPECT_NE(refusal({"--learning-rat=1"}).find("'--learning-rate'"), std::string::npos);
  EXPECT_NE(refusal({"--no-resmue"}).find("'--no-resume'"), std::string::npos);
  EXPECT_EQ(refusal({"--qqqqqqqq"}), "unknown flag --qqqqqqqq. See --help for all flags.");
  EXPECT_NE(refusal({"-x"}).find("unknown flag -x"), std::string::npos);
  EXPECT_NE(refusal({"--" + std::string(100000, 'e')}).find("unknown flag"), std::string::npos);
}

TEST(Options, AWordAfterASwitchIsItsValue) {
  const auto resumes = [](const std::vector<std::string>& words) { return parsed(words).resume; };
  EXPECT_TRUE(resumes({"--resume", "True", "--epochs", "3"}));
  EXPECT_FALSE(resumes({"--resume", "false"}));
  EXPECT_TRUE(resumes({"--resume", "--epochs", "3"}));
  EXPECT_NE(refusal({"--resume", "stray"}).find("--resume 'stray': expected true or false"),
            std::string::npos);
}

TEST(Options, MissingValuesAndStrayWordsAreNamed) {
  EXPECT_NE(refusal({"--epochs"}).find("--epochs needs a value"), std::string::npos);
  EXPECT_NE(refusal({"--data", "--resume"}).find("'--resume' follows it"), std::string::npos);
  EXPECT_NE(refusal({"--no-resume=1"}).find("takes no value"), std::string::npos);
  EXPECT_NE(refusal({"stray"}).find("unexpected argument 'stray'"), std::string::npos);
  EXPECT_NE(refusal({"--", "--epochs"}).find("unexpected argument '--epochs' after '--'"), std::string::npos);
}

/// `--standalone true ./trainer` is no program named true, and `--standalone true` alone is.
TEST(Options, ABooleanAfterASwitchIsNotTheProgram) {
  auto table = sample_table().rest("files", &Sample::files, "Files to read.");
  table.grammar({.stop_at_first_positional = true, .environment_prefix = ""});
  const auto files = [&](const std::vector<std::string>& words) { return table.parse(words).options.files; };
  for (const std::string truth : {"true", "False"}) {
    try {
      files({"--resume", truth, "./trainer"});
      ADD_FAILURE() << truth;
    } catch (const UsageError& error) {
      EXPECT_NE(std::string(error.what()).find("--resume takes no value, got '" + truth + "'"),
                std::string::npos)
          << error.what();
    }
  }
  EXPECT_EQ(files({"--resume", "true"}), std::vector<std::string>{"true"});
  EXPECT_EQ(files({"--resume", "./true", "x"}), (std::vector<std::string>{"./true", "x"}));
  EXPECT_EQ(files({"--epochs", "2", "true", "x"}), (std::vector<std::string>{"true", "x"}));
}

TEST(Options, TheRestIsTakenWhereItIsDeclared) {
  auto table = sample_table().rest("files", &Sample::files, "Files to read.");
  const auto words = std::vector<std::string>{"a", "--epochs", "2", "-", "--", "--b", "--"};
  const Sample options = table.parse(words).options;
  EXPECT_EQ(options.epochs, 2);
  EXPECT_EQ(options.files, (std::vector<std::string>{"a", "-", "--b", "--"}));
}

TEST(Options, ArgumentsAreNeitherSplitNorTakenForFlags) {
  auto table = sample_table().rest("files", &Sample::files, "Files to read.");
  const auto words = std::vector<std::string>{"a,b", "-3", "", "c d", "--", "-w", "<files>", "-h"};
  EXPECT_EQ(table.parse(words).options.files,
            (std::vector<std::string>{"a,b", "-3", "", "c d", "-w", "<files>", "-h"}));
  EXPECT_NE(refusal(table, {"--<files>=x"}).find("unknown flag --<files>"), std::string::npos);
  EXPECT_NE(refusal(table, {"--files=x"}).find("unknown flag --files"), std::string::npos);
}

/// An option may have the name of another one's negation.
TEST(Options, AnOptionThatBeginsWithNoIsNotANegation) {
  struct Colors {
    bool color = true;
    std::string no_color = "never";
  };
  const auto table = OptionTable<Colors>("colors", "Paints.")
                         .add("color", &Colors::color, "Whether to paint.")
                         .add("no-color", &Colors::no_color, "When not to paint.");
  const auto options = table.parse(std::vector<std::string>{"--no-color", "always"}).options;
  EXPECT_TRUE(options.color);
  EXPECT_EQ(options.no_color, "always");
}

TEST(Options, ArgumentsAreTakenInTheirOrder) {
  const auto table = sample_table()
                         .argument("FROM", &Sample::device, "Where from.")
                         .argument("COUNT", &Sample::workers, "How many.", at_least(1))
                         .rest("MORE", &Sample::files, "Further files.");
  const Sample options =
      table.parse(std::vector<std::string>{"a", "--epochs", "2", "3", "b", "--", "-c"}).options;
  EXPECT_EQ(options.device, "a");
  EXPECT_EQ(options.workers, 3);
  EXPECT_EQ(options.files, (std::vector<std::string>{"b", "-c"}));
  EXPECT_EQ(refusal(table, {"a"}),
            "the COUNT is missing: expected sample [options] FROM COUNT [MORE]. See --help.");
  EXPECT_EQ(refusal(table, {"a", "x"}), "COUNT 'x': expected a 32-bit integer, at least 1.");
  const auto one = sample_table().argument("FROM", &Sample::device, "Where from.");
  EXPECT_NE(refusal(one, {"a", "b"}).find("unexpected argument 'b': expected sample [options] FROM"),
            std::string::npos);
}

TEST(Options, WhatIsRequiredMustComeFromSomewhere) {
  struct Needed {
    std::string data;
    std::optional<int> rows;
    std::string config;
  };
  const auto table = OptionTable<Needed>("needed", "Reads.")
                         .add("data", &Needed::data, "The folder with train.csv.", required())
                         .add("rows", &Needed::rows, "How many.", at_least(1), required())
                         .add("config", &Needed::config, "A file of settings.")
                         .grammar({.environment_prefix = "PET_", .config_option = "config"});
  const auto refused = [&](const std::vector<std::string>& words) {
    try {
      table.parse(words);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refused({}), "--data is required: The folder with train.csv. See --help.");
  EXPECT_EQ(refused({"--data="}), refused({}));
  EXPECT_EQ(refused({"--data", "a"}), "--rows is required: How many. See --help.");
  EXPECT_EQ(table.parse({"--data", "a"}, {{"PET_ROWS", "3"}}).options.rows, 3);
  const testing::TemporaryFolder folder;
  testing::write_bytes(folder / "settings.json", R"({"data": "b", "rows": 4})");
  EXPECT_EQ(table.parse({"--config", folder / "settings.json"}).options.data, "b");
  EXPECT_TRUE(table.parse(std::vector<std::string>{"--help"}).help);
  EXPECT_NE(table.help().find("The folder with train.csv. [required]"), std::string::npos) << table.help();
}

OptionTable<Sample> launcher_like() {
  return sample_table()
      .rest("program ...", &Sample::files, "What to run.", true)
      .refuse("rdzv-backend", true, "one host needs none. Leave it out.")
      .refuse("run-path", false, "name the program itself.")
      .grammar({.stop_at_first_positional = true, .unique_prefixes = true, .environment_prefix = "PET_"});
}

TEST(OptionsGrammar, StopsAtTheFirstPositional) {
  EXPECT_EQ(launcher_like().parse({"--epochs", "2", "prog", "--epochs", "3", "--"}).options.files,
            (std::vector<std::string>{"prog", "--epochs", "3", "--"}));
  EXPECT_EQ(launcher_like().parse({"--", "--prog", "--"}).options.files,
            (std::vector<std::string>{"--prog", "--"}));
  EXPECT_NE(refusal(launcher_like(), {"--epochs=2"}).find("the program ... is missing"), std::string::npos);
}

TEST(OptionsGrammar, TakesUniquePrefixes) {
  EXPECT_EQ(launcher_like().parse({"--ep=2", "p"}).options.epochs, 2);
  EXPECT_NE(
      refusal(launcher_like(), {"--c=2", "p"}).find("--c could be any of --clip, --compiled, --columns"),
      std::string::npos);
  EXPECT_TRUE(launcher_like().parse({"--he"}).help);
  EXPECT_NE(refusal({"--ep=2"}).find("unknown flag --ep"), std::string::npos)
      << "prefixes are off by default";
}

TEST(OptionsGrammar, BlanksAroundVariablesAndEmptyOnesSetNothing) {
  const Environment environment{{"PET_EPOCHS", " 5\n"}, {"PET_OUTPUT_DIR", " "}, {"PET_COLUMNS", " a, b"}};
  const Sample options = launcher_like().parse({"p"}, environment).options;
  EXPECT_EQ(options.epochs, 5);
  EXPECT_EQ(options.output_dir, "out");
  EXPECT_EQ(options.columns, (std::vector<std::string>{" a", " b"}));
}

TEST(OptionsGrammar, TakesDefaultsFromTheEnvironment) {
  const Environment environment{{"PET_EPOCHS", "5"}, {"PET_RESUME", "1"}, {"PET_LEARNING_RATE", "2"}};
  const auto result = launcher_like().parse({"--epochs", "6", "p"}, environment);
  EXPECT_EQ(result.options.epochs, 6);
  EXPECT_TRUE(result.options.resume);
  EXPECT_EQ(result.options.learning_rate, 2.0);
  EXPECT_EQ(result.given.at("resume"), "PET_RESUME");
  EXPECT_EQ(result.given.at("epochs"), "--epochs");
  EXPECT_NE(refusal(launcher_like(), {"p"}, {{"PET_EPOCHS", "x"}}).find("PET_EPOCHS 'x': expected"),
            std::string::npos);
  EXPECT_EQ(sample_table().parse(std::vector<std::string>{}, environment).options.epochs, 10);
}

TEST(OptionsGrammar, UnknownFlagsNameTheProgramsOwnOnlyBeforeAProgram) {
  const std::string own = "Flags of the program itself come after its name";
  EXPECT_NE(refusal(launcher_like(), {"--nonsense", "prog"}).find(own), std::string::npos);
  EXPECT_EQ(refusal(launcher_like(), {"--resume", "--nonsense"}),
            "unknown flag --nonsense. See --help for all flags.");
}

TEST(OptionsGrammar, RefusedFlagsSayWhatToDo) {
  EXPECT_EQ(refusal(launcher_like(), {"--rdzv_backend", "c10d", "p"}),
            "--rdzv-backend is not supported: one host needs none. Leave it out.");
  EXPECT_NE(refusal(launcher_like(), {"--run-path", "p"}).find("name the program itself"), std::string::npos);
  EXPECT_NE(refusal(launcher_like(), {"p"}, {{"PET_RUN_PATH", "1"}}).find("PET_RUN_PATH"), std::string::npos);
  EXPECT_NO_THROW(launcher_like().parse({"p"}, {{"PET_RUN_PATH", "0"}}));
}

TEST(Options, StructsFilledByCodeAreChecked) {
  Sample options;
  EXPECT_NO_THROW(sample_table().check(options));
  options.epochs = 0;
  EXPECT_THROW(sample_table().check(options), UsageError);
}

enum class Color { red, dark_green };
std::vector<std::string> option_words(Color) { return {"red", "dark_green"}; }
struct Painted {
  Color color = Color::dark_green;
};

TEST(Options, AnEnumIsReadAndWrittenByItsWords) {
  const auto table = OptionTable<Painted>("paint", "Paints.").add("color", &Painted::color, "Which.");
  EXPECT_EQ(table.parse({"--color", "red"}).options.color, Color::red);
  EXPECT_EQ(table.from_json({{"color", "red"}}).color, Color::red);
  nlohmann::json json;
  table.to_json(json, {});
  EXPECT_EQ(json, (nlohmann::json{{"color", "dark_green"}}));
  EXPECT_THROWS(table.parse({"--color", "dark_gren"}), UsageError, "one of red, dark_green",
                "did you mean 'dark_green'");
  EXPECT_THROWS(table.from_json({{"color", 1}}), UsageError, "one of red, dark_green");
  EXPECT_THROWS(table.check({static_cast<Color>(2)}), UsageError, "'2'", "one of red, dark_green");
  EXPECT_NE(table.help().find("{red,dark_green}"), std::string::npos);
}

/// As image_classification's --epochs and --num-train-epochs.
TEST(Options, TwoNamesOfOneOptionMustAgree) {
  auto table = sample_table();
  table.add("num-train-epochs", &Sample::epochs, "Another name.");
  EXPECT_EQ(table.parse({"--epochs", "3"}).options.epochs, 3);
  EXPECT_EQ(table.parse({"--num-train-epochs=4"}).options.epochs, 4);
  EXPECT_EQ(table.parse({"--epochs", "3", "--num-train-epochs", "03"}).options.epochs, 3);
  EXPECT_EQ(table.parse({"--epochs", "5", "--num-train-epochs", "3", "--epochs", "3"}).options.epochs, 3);
  for (const auto& words : {std::vector<std::string>{"--epochs", "3", "--num-train-epochs", "5"},
                            std::vector<std::string>{"--num_train_epochs=5", "--epochs=3"}})
    EXPECT_THROWS(table.parse(words), UsageError, "--epochs 3 contradicts --num-train-epochs 5");
  EXPECT_EQ(table.from_json({{"epochs", 3}, {"num_train_epochs", 3}}).epochs, 3);
  EXPECT_THROWS(table.from_json({{"epochs", 3}, {"num_train_epochs", 5}}), UsageError,
                "JSON key 'epochs' 3 contradicts JSON key 'num_train_epochs' 5");
  table.grammar({.environment_prefix = "PET_"});
  EXPECT_EQ(table.parse({"--num-train-epochs=5"}, {{"PET_EPOCHS", "3"}}).options.epochs, 5)
      << "the command line overrides the environment";
  EXPECT_THROWS(table.parse({}, {{"PET_EPOCHS", "3"}, {"PET_NUM_TRAIN_EPOCHS", "5"}}), UsageError,
                "PET_EPOCHS 3 contradicts PET_NUM_TRAIN_EPOCHS 5");
}

TEST(Options, MistakesOfTheProgramAreLogicErrors) {
  auto table = sample_table();
  EXPECT_THROW(table.add("epochs", &Sample::epochs, "Again."), std::logic_error);
  EXPECT_THROW(table.add("other", &Sample::epochs, "Same letter.", short_name('w')), std::logic_error);
  EXPECT_THROW(table.add("another", &Sample::epochs, "No letter.", short_name('?')), std::logic_error);
  EXPECT_THROW(table.add("under_score", &Sample::epochs, "No flag name."), std::logic_error);
  EXPECT_THROW(table.add("help", &Sample::epochs, "Taken."), std::logic_error);
}

}  // namespace
}  // namespace lockstep
